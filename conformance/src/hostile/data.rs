//! Misbehaviours in reads and writes of plain files.

use ninefold_proto::dialect::DialectSet;
use ninefold_proto::message::Payload;
use ninefold_proto::wire::HEADER;
use ninefold_proto::{R, T};

use super::misbehaviour::{Hook, Misbehaviour};
use super::scene::{Reply, Scene};

pub(super) const TABLE: &[Misbehaviour] = &[
    Misbehaviour::new(
        "read-too-much",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| read(scene, reply, |data, asked| data.resize(asked as usize + 1, b'x'))),
        "reads one byte more than was asked for",
        "read(5): no more than count bytes",
    ),
    Misbehaviour::new(
        "read-count-lies",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            let mut frame = reply.frame.to_vec();
            if is_read(scene, reply).is_some() {
                frame[HEADER..HEADER + 4].copy_from_slice(&[0xff; 4]);
            }
            scene.say(frame);
        }),
        "says that 4 GiB - 1 of data follow where a few bytes do",
        "intro(5): counts are of what follows",
    ),
    Misbehaviour::odd(
        "read-one-byte",
        DialectSet::PUL,
        Hook::Request(|scene, request| match request.message {
            T::Read { fid, offset, count: 2.. } if scene.is_plain(fid) => {
                scene.ask(request.tag, &T::Read { fid, offset, count: 1 });
            }
            _ => scene.forward(request.tag, request.frame),
        }),
        "reads one byte a request",
    ),
    Misbehaviour::odd(
        "read-endless",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| read(scene, reply, |data, asked| data.resize(asked as usize, b'x'))),
        "reads on for ever behind the end of its files",
    ),
    Misbehaviour::odd(
        "read-nothing",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| read(scene, reply, |data, _| data.clear())),
        "reads nothing from files that it says have content",
    ),
    Misbehaviour::new(
        "write-too-much",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| match reply.message {
            R::Write { count } => scene.answer(reply.tag, &R::Write { count: count.saturating_add(1) }),
            _ => scene.say(reply.frame),
        }),
        "says that it wrote one byte more than was sent",
        "read(5): no more than count bytes",
    ),
    Misbehaviour::new(
        "write-nothing",
        DialectSet::PUL,
        Hook::Request(|scene, request| match request.message {
            T::Write { .. } => scene.answer(request.tag, &R::Write { count: 0 }),
            _ => scene.forward(request.tag, request.frame),
        }),
        "takes no byte of any write, and has no error to tell",
        "read(5): a write that is short has a reason",
    ),
    Misbehaviour::odd(
        "write-one-byte",
        DialectSet::PUL,
        Hook::Request(|scene, request| match request.message {
            T::Write { fid, offset, data } if data.0.len() > 1 => {
                scene.ask(request.tag, &T::Write { fid, offset, data: Payload(&data.0[..1]) });
            }
            _ => scene.forward(request.tag, request.frame),
        }),
        "writes one byte a request",
    ),
];

/// The data of a plain file, and how many bytes were asked for, if the reply is such.
fn is_read<'f>(scene: &Scene, reply: &Reply<'f>) -> Option<(&'f [u8], u32)> {
    match (reply.to, reply.message) {
        (T::Read { fid, count, .. }, R::Read { data }) if scene.is_plain(fid) => Some((data.0, count)),
        _ => None,
    }
}

/// Answers a read with the data as `change` leaves it.
fn read(scene: &mut Scene, reply: &Reply<'_>, change: fn(&mut Vec<u8>, u32)) {
    let Some((data, asked)) = is_read(scene, reply) else { return scene.say(reply.frame) };
    let mut data = data.to_vec();
    change(&mut data, asked);
    scene.answer(reply.tag, &R::Read { data: Payload(&data) });
}
