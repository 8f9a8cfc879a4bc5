//! Misbehaviours at the attach.

use ninefold_proto::dialect::DialectSet;
use ninefold_proto::{Qid, QidType, R, T};

use super::misbehaviour::{Hook, Misbehaviour};

pub(super) const TABLE: &[Misbehaviour] = &[
    Misbehaviour::new(
        "attach-silent",
        DialectSet::PUL,
        Hook::Request(|scene, request| {
            if !matches!(request.message, T::Attach { .. } | T::Session { .. }) {
                scene.forward(request.tag, request.frame);
            }
        }),
        "never answers Tattach",
        "intro(5): each request is answered",
    ),
    Misbehaviour::odd(
        "attach-closed",
        DialectSet::PUL,
        Hook::Request(|scene, request| match request.message {
            T::Attach { .. } | T::Session { .. } => scene.hang_up(),
            _ => scene.forward(request.tag, request.frame),
        }),
        "closes the connection at Tattach",
    ),
    Misbehaviour::odd(
        "attach-file",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| match reply.message {
            R::Attach { qid } => {
                let qid = Qid { kind: QidType::FILE, ..qid };
                scene.answer(reply.tag, &R::Attach { qid });
            }
            R::Session { .. } => {
                // `qid[13]` is the last field.
                let mut frame = reply.frame.to_vec();
                let at = frame.len() - 13;
                frame[at] = QidType::FILE.0;
                scene.say(frame);
            }
            _ => scene.say(reply.frame),
        }),
        "says that the root of its tree is a plain file",
    ),
];
