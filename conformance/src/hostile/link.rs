//! Misbehaviours in symbolic links. 9P2000 has none.

use ninefold_proto::dialect::DialectSet;
use ninefold_proto::stat::dm;
use ninefold_proto::{R, T};

use super::listing;
use super::misbehaviour::{Hook, Misbehaviour};
use super::scene::{Reply, Scene};

/// symlink(7), readlink(2): what a target may be.
const TARGETS: &str = "symlink(2): a target is not empty, has no NUL, and is a path, so under 4096 bytes";

pub(super) const TABLE: &[Misbehaviour] = &[
    Misbehaviour::odd("link-loop", DialectSet::UL, Hook::Tree, "has a symbolic link to itself"),
    Misbehaviour::odd(
        "link-chain",
        DialectSet::UL,
        Hook::Both(
            |scene, request| match request.message {
                T::Walk { fid, newfid, wnames } => {
                    let is_next = |name: &[u8]| name.starts_with(b"next");
                    let names: Vec<&[u8]> =
                        wnames.iter().map(|name| if is_next(name) { b"link" } else { name }).collect();
                    scene.ask_walk(request.tag, fid, newfid, &names);
                }
                _ => listing::resumed(scene, request),
            },
            |scene, reply| {
                let next = format!("next{}", scene.count);
                target(scene, reply, next.as_bytes());
            },
        ),
        "has a symbolic link that leads to a new one each time it is followed",
    ),
    Misbehaviour::new(
        "link-target-nul",
        DialectSet::UL,
        Hook::Both(listing::resumed, |scene, reply| target(scene, reply, b"greet\0ing")),
        "gives a link's target with a NUL",
        TARGETS,
    ),
    Misbehaviour::new(
        "link-target-empty",
        DialectSet::UL,
        Hook::Both(listing::resumed, |scene, reply| target(scene, reply, b"")),
        "gives a link's target of no bytes",
        TARGETS,
    ),
    Misbehaviour::new(
        "link-target-long",
        DialectSet::UL,
        Hook::Both(listing::resumed, |scene, reply| target(scene, reply, &[b'x'; 65_000])),
        "gives a link's target of 65,000 bytes",
        TARGETS,
    ),
    Misbehaviour::new(
        "link-target-winding",
        DialectSet::UL,
        Hook::Both(listing::resumed, |scene, reply| {
            target(scene, reply, &[&b"dir/../".repeat(9_000)[..], b"greeting"].concat())
        }),
        "gives a link's target of 63,008 bytes that goes 9,000 times there and back",
        TARGETS,
    ),
    Misbehaviour::odd(
        "link-target-escape",
        DialectSet::UL,
        Hook::Both(listing::resumed, |scene, reply| target(scene, reply, b"\x1b[31mred\x07\n")),
        "gives a link's target that holds an escape sequence",
    ),
];

/// Gives links another target, and counts what was asked about one.
fn target<'r>(scene: &mut Scene, reply: &Reply<'r>, to: &'r [u8]) {
    match reply.message {
        R::Readlink { .. } => {
            scene.count += 1;
            scene.answer(reply.tag, &R::Readlink { target: to });
        }
        _ => {
            scene.count += u64::from(matches!(reply.message, R::Stat { .. }));
            listing::records(scene, reply, |stat| {
                if stat.mode & dm::SYMLINK != 0 {
                    stat.extension = to;
                }
            });
        }
    }
}
