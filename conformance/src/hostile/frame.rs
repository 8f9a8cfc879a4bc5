//! Misbehaviours in frames, in answer to everything that comes after the attach.

use ninefold_proto::dialect::DialectSet;
use ninefold_proto::wire::HEADER;

use super::misbehaviour::{Hook, Misbehaviour};
use super::scene::{Reply, Scene};

pub(super) const TABLE: &[Misbehaviour] = &[
    Misbehaviour::new(
        "frame-size-zero",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| resized(scene, reply, 0)),
        "sends frames of size 0",
        "intro(5): size counts itself, type and tag",
    ),
    Misbehaviour::new(
        "frame-size-six",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| resized(scene, reply, 6)),
        "sends frames of size 6",
        "intro(5): size counts itself, type and tag",
    ),
    Misbehaviour::new(
        "frame-over-msize",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            let msize = scene.msize;
            worked(scene, reply, |frame| {
                frame.resize(msize as usize + 1, 0);
                frame[..4].copy_from_slice(&(msize + 1).to_le_bytes());
            });
        }),
        "sends frames one byte over the msize",
        "version(5): no message may be larger than msize",
    ),
    Misbehaviour::new(
        "frame-four-gib",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| resized(scene, reply, u32::MAX)),
        "announces frames of 4 GiB - 1",
        "version(5): no message may be larger than msize",
    ),
    Misbehaviour::new(
        "frame-cut-silent",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| match (reply.is_work(), scene.count) {
            (false, _) => scene.say(reply.frame),
            (true, 0) => {
                scene.count += 1;
                scene.say(&reply.frame[..HEADER - 1]);
            }
            (true, _) => {}
        }),
        "stops in the middle of a frame and says nothing more",
        "intro(5): each request is answered",
    ),
    Misbehaviour::odd(
        "frame-cut-closed",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            if !reply.is_work() {
                return scene.say(reply.frame);
            }
            scene.say(&reply.frame[..HEADER - 1]);
            scene.hang_up();
        }),
        "closes the connection in the middle of a frame",
    ),
    Misbehaviour::new(
        "frame-trailing",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| worked(scene, reply, |frame| frame.extend_from_slice(b"more"))),
        "puts four bytes behind the last field",
        "intro(5): size is that of the message",
    ),
    Misbehaviour::new(
        "frame-short",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| match reply.frame.len() {
            // An Rclunk has nothing that could be missing.
            HEADER => scene.say(reply.frame),
            length => worked(scene, reply, |frame| frame.truncate(length - 1)),
        }),
        "leaves out the last byte of the last field",
        "intro(5): size is that of the message",
    ),
    Misbehaviour::new(
        "frame-unknown-type",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| worked(scene, reply, |frame| frame[4] = 251)),
        "sends messages of type 251",
        "intro(5): a reply is of the request's type or an error",
    ),
];

/// Says the frame with another size field.
fn resized(scene: &mut Scene, reply: &Reply<'_>, size: u32) {
    if !reply.is_work() {
        return scene.say(reply.frame);
    }
    let mut frame = reply.frame.to_vec();
    frame[..4].copy_from_slice(&size.to_le_bytes());
    scene.say(frame);
}

/// Says the frame as `change` leaves it, with the size that it then has.
fn worked(scene: &mut Scene, reply: &Reply<'_>, change: impl FnOnce(&mut Vec<u8>)) {
    if !reply.is_work() {
        return scene.say(reply.frame);
    }
    let mut frame = reply.frame.to_vec();
    change(&mut frame);
    let size = frame.len() as u32;
    frame[..4].copy_from_slice(&size.to_le_bytes());
    scene.say(frame);
}
