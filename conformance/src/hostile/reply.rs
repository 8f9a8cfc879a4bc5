//! Misbehaviours in the type and the tag of replies, in answer to everything that comes after the attach.

use ninefold_proto::dialect::DialectSet;
use ninefold_proto::types::Tag;
use ninefold_proto::{Dialect, R, T};

use super::misbehaviour::{Hook, Misbehaviour};
use super::scene::{Reply, Scene};

pub(super) const TABLE: &[Misbehaviour] = &[
    Misbehaviour::new(
        "reply-other-type",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            let other = if matches!(reply.to, T::Clunk { .. }) { R::Remove {} } else { R::Clunk {} };
            instead(scene, reply, reply.tag, &other);
        }),
        "answers with Rclunk, and Tclunk with Rremove",
        "intro(5): a reply is of the request's type or an error",
    ),
    Misbehaviour::new(
        "reply-other-error",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            if !reply.is_work() {
                return scene.say(reply.frame);
            }
            // Encoded in the dialect that has it, which is not the one agreed.
            let mut frame = Vec::new();
            match scene.dialect {
                Dialect::Linux => {
                    R::Error { ename: b"i/o error", errno: 5 }.encode(reply.tag, Dialect::Unix, &mut frame);
                }
                Dialect::Plan9 | Dialect::Unix => {
                    R::Lerror { ecode: 5, retry_ms: 0, text: b"" }.encode(reply.tag, Dialect::Linux, &mut frame)
                }
            }
            scene.say(frame);
        }),
        "sends Rerror in 9P2000.L, and Rlerror elsewhere",
        "each dialect has one error message",
    ),
    Misbehaviour::new(
        "reply-is-request",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            if !reply.is_work() {
                return scene.say(reply.frame);
            }
            let mut frame = Vec::new();
            reply.to.encode(reply.tag, scene.version, &mut frame);
            scene.say(frame);
        }),
        "sends each request back",
        "intro(5): requests come from clients",
    ),
    Misbehaviour::new(
        "tag-unused",
        DialectSet::PUL,
        // No client has so many requests outstanding.
        Hook::Reply(|scene, reply| retagged(scene, reply, Tag(reply.tag.0 ^ 0x7000))),
        "answers under a tag that nothing was asked on",
        "intro(5): a reply has the tag of a request",
    ),
    Misbehaviour::new(
        "tag-none",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| retagged(scene, reply, Tag::NONE)),
        "answers under NOTAG",
        "version(5): NOTAG is for Tversion",
    ),
    Misbehaviour::new(
        "tag-twice",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            scene.say(reply.frame);
            if reply.is_work() {
                scene.say(reply.frame);
            }
        }),
        "sends each reply twice",
        "intro(5): each request has one reply",
    ),
];

fn instead(scene: &mut Scene, reply: &Reply<'_>, tag: Tag, message: &R<'_>) {
    if reply.is_work() {
        scene.answer(tag, message);
    } else {
        scene.say(reply.frame);
    }
}

fn retagged(scene: &mut Scene, reply: &Reply<'_>, tag: Tag) {
    instead(scene, reply, tag, &reply.message);
}
