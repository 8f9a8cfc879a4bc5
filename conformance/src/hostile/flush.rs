//! Misbehaviours when a request is given up. For that no read of a plain file is answered.

use ninefold_proto::dialect::DialectSet;
use ninefold_proto::message::Payload;
use ninefold_proto::types::Tag;
use ninefold_proto::{Dialect, R, T};

use super::misbehaviour::{Hook, Misbehaviour};
use super::scene::{Request, Scene};

pub(super) const TABLE: &[Misbehaviour] = &[
    Misbehaviour::new(
        "flush-silent",
        DialectSet::PUL,
        Hook::Request(|scene, request| held(scene, request, |_, _, _| ())),
        "answers neither reads nor the Tflush that gives them up",
        "flush(5): the server must answer",
    ),
    Misbehaviour::new(
        "flush-late",
        DialectSet::PUL,
        Hook::Request(|scene, request| {
            held(scene, request, |scene, tag, oldtag| {
                scene.answer(tag, &R::Flush {});
                read(scene, oldtag);
            });
        }),
        "answers a Tflush, and then the read that it gave up",
        "flush(5): no reply to oldtag comes behind Rflush",
    ),
    Misbehaviour::new(
        "flush-instead",
        DialectSet::PUL,
        Hook::Request(|scene, request| held(scene, request, |scene, _, oldtag| read(scene, oldtag))),
        "answers a read when it is given up, and never the Tflush",
        "flush(5): the server must answer",
    ),
    Misbehaviour::odd(
        "flush-both",
        DialectSet::PUL,
        Hook::Request(|scene, request| {
            held(scene, request, |scene, tag, oldtag| {
                read(scene, oldtag);
                scene.answer(tag, &R::Flush {});
            });
        }),
        "answers a read only when it is given up, and then the Tflush",
    ),
    Misbehaviour::new(
        "flush-error",
        DialectSet::PUL,
        Hook::Request(|scene, request| {
            held(scene, request, |scene, tag, _| {
                let error = match scene.dialect {
                    Dialect::Linux => R::Lerror { ecode: 22, retry_ms: 0, text: b"" },
                    Dialect::Plan9 | Dialect::Unix => R::Error { ename: b"bad tag", errno: 22 },
                };
                scene.answer(tag, &error);
            });
        }),
        "answers Tflush with an error",
        "flush(5): there is no error to a Tflush",
    ),
];

/// Keeps reads of plain files, and hands the Tflush of one to `flush`: its tag, and the tag given up.
fn held(scene: &mut Scene, request: &Request<'_>, flush: fn(&mut Scene, Tag, Tag)) {
    match request.message {
        T::Read { fid, count, .. } if scene.is_plain(fid) => scene.unanswered.push((request.tag, count)),
        T::Flush { oldtag } if scene.unanswered.iter().any(|&(tag, _)| tag == oldtag) => {
            flush(scene, request.tag, oldtag);
            scene.unanswered.retain(|&(tag, _)| tag != oldtag);
        }
        // In a group nothing is carried out behind a read that is kept.
        _ if scene.unanswered.iter().any(|&(tag, _)| tag == request.tag) => {}
        _ => scene.forward(request.tag, request.frame),
    }
}

/// Answers a read that was kept.
fn read(scene: &mut Scene, tag: Tag) {
    let asked = scene.unanswered.iter().find(|&&(kept, _)| kept == tag).map(|&(_, count)| count);
    if let Some(count) = asked {
        scene.answer(tag, &R::Read { data: Payload(&vec![b'x'; count as usize]) });
    }
}
