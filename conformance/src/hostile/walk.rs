//! Misbehaviours in walks.

use ninefold_proto::dialect::DialectSet;
use ninefold_proto::{Qid, QidType, R, T};

use super::misbehaviour::{Hook, Misbehaviour};
use super::scene::{Reply, Scene};

pub(super) const TABLE: &[Misbehaviour] = &[
    Misbehaviour::new(
        "walk-too-many",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            edited(scene, reply, |qids| qids.push(Qid { kind: QidType::FILE, version: 0, path: 7 }));
        }),
        "answers a walk with one qid more than there are names",
        "walk(5): a qid for each name walked",
    ),
    Misbehaviour::new(
        "walk-none",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| edited(scene, reply, Vec::clear)),
        "answers a walk of names with no qid",
        "walk(5): an error when the first name cannot be walked",
    ),
    Misbehaviour::new(
        "walk-count-lies",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            let mut frame = reply.frame.to_vec();
            if matches!(reply.message, R::Walk { .. }) {
                // nwqid, behind the header.
                frame[7..9].copy_from_slice(&[0xff; 2]);
            }
            scene.say(frame);
        }),
        "says that 65,535 qids follow where a few do",
        "intro(5): counts are of what follows",
    ),
    Misbehaviour::odd(
        "walk-partial",
        DialectSet::PUL,
        Hook::Request(|scene, request| match request.message {
            T::Walk { fid, newfid, wnames } if wnames.len() > 1 => {
                let mut names: Vec<&[u8]> = wnames.iter().collect();
                names[wnames.len() - 1] = b"nothing has this name";
                scene.ask_walk(request.tag, fid, newfid, &names);
            }
            _ => scene.forward(request.tag, request.frame),
        }),
        "never finds the last of several names",
    ),
    Misbehaviour::new(
        "walk-alike",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            edited(scene, reply, |qids| qids.iter_mut().for_each(|qid| qid.path = 7));
        }),
        "gives every file that is walked to the same qid path",
        "intro(5): two files have one path only if they are the same",
    ),
    Misbehaviour::new(
        "walk-through-file",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            edited(scene, reply, |qids| {
                if let Some((_, through)) = qids.split_last_mut() {
                    through.iter_mut().for_each(|qid| qid.kind = QidType::FILE);
                }
            });
        }),
        "walks on through what it says are plain files",
        "walk(5): only directories are walked through",
    ),
];

/// Answers a walk with the qids as `change` leaves them.
fn edited(scene: &mut Scene, reply: &Reply<'_>, change: impl FnOnce(&mut Vec<Qid>)) {
    let R::Walk { wqids } = reply.message else { return scene.say(reply.frame) };
    let mut qids = wqids.iter().collect();
    change(&mut qids);
    scene.answer_walk(reply.tag, &qids);
}
