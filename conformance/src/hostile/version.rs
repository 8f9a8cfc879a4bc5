//! Misbehaviours before a version is agreed.

use ninefold_proto::dialect::{DialectSet, UNKNOWN};
use ninefold_proto::types::Tag;
use ninefold_proto::{R, T};

use super::misbehaviour::{Hook, Misbehaviour};
use super::scene::{Reply, Request, Scene};

pub(super) const TABLE: &[Misbehaviour] = &[
    Misbehaviour::new(
        "version-msize-above",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| msize(scene, reply, |offered| offered.saturating_add(1))),
        "agrees to an msize one byte over the one offered",
        "version(5): the server responds with its own maximum, which must be no greater",
    ),
    Misbehaviour::new(
        "version-msize-greatest",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| msize(scene, reply, |_| u32::MAX)),
        "agrees to an msize of 4 GiB - 1",
        "version(5): the server responds with its own maximum, which must be no greater",
    ),
    Misbehaviour::new(
        "version-msize-zero",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| msize(scene, reply, |_| 0)),
        "agrees to an msize of 0",
        "intro(5): no message fits",
    ),
    Misbehaviour::new(
        "version-msize-100",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| msize(scene, reply, |_| 100)),
        "agrees to an msize of 100 bytes",
        "read(5): a directory entry does not fit",
    ),
    Misbehaviour::odd(
        "version-unknown",
        DialectSet::PUL,
        Hook::Request(|scene, request| version(scene, request, |_| UNKNOWN.into())),
        "answers every Tversion with 'unknown'",
    ),
    Misbehaviour::new(
        "version-not-offered",
        DialectSet::PUL,
        Hook::Request(|scene, request| version(scene, request, |_| b"9P2000.e".to_vec())),
        "agrees to 9P2000.e, whatever is offered",
        "version(5): the version answered is the one offered or an earlier one",
    ),
    Misbehaviour::new(
        "version-longer",
        DialectSet::PUL,
        Hook::Request(|scene, request| version(scene, request, |offer| [offer, b".zz"].concat())),
        "puts a suffix behind the version offered",
        "version(5): the version answered is the one offered or an earlier one",
    ),
    Misbehaviour::new(
        "version-empty",
        DialectSet::PUL,
        Hook::Request(|scene, request| version(scene, request, |_| Vec::new())),
        "agrees to a version without a name",
        "version(5): the version begins with 9P",
    ),
    Misbehaviour::new(
        "version-endless-name",
        DialectSet::PUL,
        Hook::Request(|scene, request| version(scene, request, |_| vec![b'9'; 65_000])),
        "agrees to a version whose name has 65,000 bytes",
        "version(5): the version answered is the one offered or an earlier one",
    ),
    Misbehaviour::new(
        "version-error",
        DialectSet::PUL,
        Hook::Request(|scene, request| match request.message {
            T::Version { .. } => scene.answer(request.tag, &R::Error { ename: b"not today", errno: 1 }),
            _ => scene.forward(request.tag, request.frame),
        }),
        "answers every Tversion with Rerror",
        "version(5): a server that does not understand the version answers 'unknown'",
    ),
    Misbehaviour::odd(
        "version-closed",
        DialectSet::PUL,
        Hook::Request(|scene, request| match request.message {
            T::Version { .. } => scene.hang_up(),
            _ => scene.forward(request.tag, request.frame),
        }),
        "closes the connection at every Tversion",
    ),
    Misbehaviour::new(
        "version-silent",
        DialectSet::PUL,
        Hook::Request(|_, _| ()),
        "never answers Tversion",
        "intro(5): each request is answered",
    ),
    Misbehaviour::new(
        "version-other-type",
        DialectSet::PUL,
        Hook::Request(|scene, request| match request.message {
            T::Version { .. } => scene.answer(request.tag, &R::Clunk {}),
            _ => scene.forward(request.tag, request.frame),
        }),
        "answers Tversion with Rclunk",
        "intro(5): a reply is of the request's type or an error",
    ),
    Misbehaviour::new(
        "version-twice",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            scene.say(reply.frame);
            if matches!(reply.message, R::Version { .. }) {
                scene.say(reply.frame);
            }
        }),
        "sends Rversion twice",
        "intro(5): each request has one reply",
    ),
    Misbehaviour::new(
        "version-again",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            if reply.is_work() {
                let msize = scene.msize;
                scene.answer(Tag::NONE, &R::Version { msize, version: b"9P2000" });
            }
            scene.say(reply.frame);
        }),
        "sends an Rversion that nobody asked for in front of each reply",
        "intro(5): a reply has the tag of a request",
    ),
    Misbehaviour::odd(
        "version-plain",
        DialectSet::UL,
        Hook::Request(|scene, request| match request.message {
            T::Version { msize, .. } => scene.ask(request.tag, &T::Version { msize, version: b"9P2000" }),
            _ => scene.forward(request.tag, request.frame),
        }),
        "speaks plain 9P2000, whatever is offered",
    ),
    Misbehaviour::new(
        "banner",
        DialectSet::PUL,
        Hook::Greeting(b"SSH-2.0-OpenSSH_9.2\r\n"),
        "is no 9P server: greets as an ssh server does",
        "version(5): the client speaks first",
    ),
];

/// Agrees, but to another msize.
fn msize(scene: &mut Scene, reply: &Reply<'_>, of: fn(u32) -> u32) {
    match (reply.to, reply.message) {
        (T::Version { msize, .. }, R::Version { version, .. }) => {
            scene.answer(reply.tag, &R::Version { msize: of(msize), version });
        }
        _ => scene.say(reply.frame),
    }
}

/// Answers Tversion by itself.
fn version(scene: &mut Scene, request: &Request<'_>, of: fn(&[u8]) -> Vec<u8>) {
    match request.message {
        T::Version { msize, version } => {
            scene.answer(request.tag, &R::Version { msize, version: &of(version) });
        }
        _ => scene.forward(request.tag, request.frame),
    }
}
