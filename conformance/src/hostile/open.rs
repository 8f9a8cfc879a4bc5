//! Misbehaviours in what open and create answer.

use ninefold_proto::dialect::DialectSet;
use ninefold_proto::{Qid, QidType, R};

use super::misbehaviour::{Hook, Misbehaviour};
use super::scene::{Reply, Scene};

pub(super) const TABLE: &[Misbehaviour] = &[
    Misbehaviour::new(
        "open-other-kind",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            edited(scene, reply, |qid, _| qid.kind = QidType(qid.kind.0 ^ QidType::DIR.0));
        }),
        "opens files as directories and directories as files",
        "intro(5): a file keeps its qid's type",
    ),
    Misbehaviour::new(
        "open-other-file",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| edited(scene, reply, |qid, _| qid.path ^= 1 << 60)),
        "opens another file than was walked to",
        "intro(5): a file keeps its qid's path",
    ),
    Misbehaviour::new(
        "open-iounit-greatest",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| edited(scene, reply, |_, iounit| *iounit = u32::MAX)),
        "has an iounit of 4 GiB - 1",
        "open(5): iounit bytes fit one message",
    ),
    Misbehaviour::odd(
        "open-iounit-one",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| edited(scene, reply, |_, iounit| *iounit = 1)),
        "has an iounit of one byte",
    ),
];

/// Answers an open or a create with the qid and the iounit as `change` leaves them.
fn edited(scene: &mut Scene, reply: &Reply<'_>, change: impl Fn(&mut Qid, &mut u32)) {
    let mut message = reply.message;
    match &mut message {
        R::Open { qid, iounit } | R::Create { qid, iounit } | R::Lopen { qid, iounit } | R::Lcreate { qid, iounit } => {
            change(qid, iounit)
        }
        _ => return scene.say(reply.frame),
    }
    scene.answer(reply.tag, &message);
}
