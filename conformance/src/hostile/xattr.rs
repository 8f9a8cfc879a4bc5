//! Misbehaviours in extended attributes and locks. Only 9P2000.L has them.

use ninefold_proto::R;
use ninefold_proto::dialect::DialectSet;

use super::misbehaviour::{Hook, Misbehaviour};
use super::scene::{Reply, Scene};

pub(super) const TABLE: &[Misbehaviour] = &[
    Misbehaviour::odd(
        "xattr-size-absurd",
        DialectSet::L,
        Hook::Reply(|scene, reply| sized(scene, reply, 1 << 60)),
        "says that an extended attribute has 2^60 bytes",
    ),
    Misbehaviour::new(
        "xattr-size-small",
        DialectSet::L,
        Hook::Reply(|scene, reply| sized(scene, reply, 2)),
        "says that an extended attribute has 2 bytes, and reads more",
        "diod protocol.md: Rxattrwalk has the size of the value",
    ),
    Misbehaviour::new(
        "lock-other-status",
        DialectSet::L,
        Hook::Reply(|scene, reply| match reply.message {
            R::Lock { .. } => scene.answer(reply.tag, &R::Lock { status: 250 }),
            _ => scene.say(reply.frame),
        }),
        "answers Tlock with status 250",
        "diod protocol.md: status is 0 to 3",
    ),
];

fn sized(scene: &mut Scene, reply: &Reply<'_>, size: u64) {
    match reply.message {
        R::Xattrwalk { .. } => scene.answer(reply.tag, &R::Xattrwalk { size }),
        _ => scene.say(reply.frame),
    }
}
