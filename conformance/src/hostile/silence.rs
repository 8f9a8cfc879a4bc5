//! Misbehaviours in time: what never comes, comes slowly, or stops.

use std::time::Duration;

use ninefold_proto::dialect::DialectSet;
use ninefold_proto::{R, T};

use super::misbehaviour::{Hook, Misbehaviour};

/// Replies with data that come before the connection is closed in their midst.
const READS: u64 = 2;

pub(super) const TABLE: &[Misbehaviour] = &[
    Misbehaviour::new(
        "silent",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            if !reply.is_work() {
                scene.say(reply.frame);
            }
        }),
        "answers nothing after Tattach",
        "intro(5): each request is answered",
    ),
    Misbehaviour::new(
        "clunk-silent",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            if !matches!(reply.to, T::Clunk { .. }) {
                scene.say(reply.frame);
            }
        }),
        "never answers Tclunk",
        "intro(5): each request is answered",
    ),
    Misbehaviour::odd(
        "drip",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            if !reply.is_work() {
                return scene.say(reply.frame);
            }
            for &byte in reply.frame {
                scene.say([byte]);
                scene.pause(Duration::from_secs(1));
            }
        }),
        "sends one byte a second after Tattach",
    ),
    Misbehaviour::odd(
        "closed-midway",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            scene.say(reply.frame);
            if matches!(reply.message, R::Read { .. } | R::Write { .. }) {
                scene.count += 1;
                if scene.count == READS {
                    scene.hang_up();
                }
            }
        }),
        "closes the connection behind the second Rread or Rwrite",
    ),
    Misbehaviour::odd(
        "deaf",
        DialectSet::PUL,
        Hook::Request(|scene, request| {
            scene.deaf = !matches!(request.message, T::Version { .. } | T::Attach { .. } | T::Session { .. });
            scene.forward(request.tag, request.frame);
        }),
        "reads nothing behind the first request after Tattach",
    ),
];
