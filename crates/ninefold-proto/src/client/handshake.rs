//! The handshake: the frames of a version negotiation.

use alloc::vec::Vec;

use super::ServerMisbehaved;
use crate::dialect::{Dialect, Negotiation, Step, Version, VersionAnswer};
use crate::message::{R, RERROR, RLERROR, RVERSION, T};
use crate::types::Tag;
use crate::wire::{DecodeError, HEADER, MSIZE_MIN, split_frame};

/// Version negotiation over frames; the rules are those of [`Negotiation`].
#[derive(Clone, Debug)]
pub struct Handshake {
    negotiation: Negotiation,
}

/// The longest answer that is read: an Rerror with a text of 65,535 bytes.
const ANSWER_MAX: u32 = (HEADER + 2 + 65_535 + 4) as u32;

impl Handshake {
    /// Offers `msize` and the best dialect first, or only `version` where one is pinned.
    pub fn new(msize: u32, version: Option<Version>) -> Handshake {
        let negotiation = match version {
            Some(version) => Negotiation::pinned(msize, version),
            None => Negotiation::new(msize),
        };
        Handshake { negotiation }
    }

    /// Offers `msize` and `offer` first, which the server took the last time, and then the best dialect and so on.
    pub fn remembering(msize: u32, offer: Version) -> Handshake {
        Handshake { negotiation: Negotiation::remembering(msize, offer) }
    }

    /// Appends the Tversion to send now.
    pub fn offer(&self, out: &mut Vec<u8>) {
        let (version, msize) = self.negotiation.offer();
        // Tversion is laid out alike in every dialect.
        T::Version { msize, version: version.as_bytes() }.encode(Tag::NONE, Dialect::Plan9, out);
    }

    /// The version string offered now.
    pub fn offered(&self) -> &'static str {
        self.negotiation.offer().0
    }

    /// Whether only one dialect is offered.
    pub fn is_pinned(&self) -> bool {
        self.negotiation.is_pinned()
    }

    /// The largest frame that may come now, in bytes.
    pub fn frame_max(&self) -> u32 {
        ANSWER_MAX
    }

    /// Takes the frame that answers the last offer. Errors may come as Rerror, with or without a number, or as
    /// Rlerror, under whatever tag (research of real servers); their content does not matter.
    pub fn handle_frame(&mut self, frame: &[u8]) -> Result<Step, ServerMisbehaved> {
        let (header, body) = split_frame(frame).map_err(ServerMisbehaved::Frame)?;
        if header.size > ANSWER_MAX {
            let (size, msize) = (header.size, ANSWER_MAX);
            return Err(ServerMisbehaved::Frame(DecodeError::SizeTooLarge { size, msize }));
        }
        let answer = match header.kind {
            RLERROR | RERROR => VersionAnswer::Refused,
            RVERSION => match R::decode(RVERSION, body, Dialect::Plan9) {
                Ok(R::Version { msize, version }) => VersionAnswer::Version { msize, version },
                Err(error) => return Err(ServerMisbehaved::Body { name: "Rversion", error }),
                Ok(_) => return Err(wrong_answer(RVERSION)),
            },
            kind => return Err(wrong_answer(kind)),
        };
        let (offer, offered) = self.negotiation.offer();
        if let VersionAnswer::Version { msize: got, version } = answer
            && offer.as_bytes().starts_with(version)
            && Version::parse(version).is_some()
            && !(MSIZE_MIN..=offered).contains(&got)
        {
            return Err(ServerMisbehaved::Msize { offered, got });
        }
        Ok(self.negotiation.handle(answer))
    }

    /// The connection was closed in place of an answer, or no answer came in time: some servers close on a version that
    /// they do not know, and some say nothing at all (knusbaum/go9p has done both).
    pub fn handle_close(&mut self) -> Step {
        self.negotiation.handle(VersionAnswer::Closed)
    }
}

fn wrong_answer(kind: u8) -> ServerMisbehaved {
    let name = |table: &'static [crate::message::MessageInfo]| table.iter().find(|row| row.number == kind);
    match (name(R::TABLE), name(T::TABLE)) {
        (Some(row), _) => ServerMisbehaved::WrongType { request: "Tversion", reply: row.name },
        (None, Some(row)) => ServerMisbehaved::RequestFromServer(row.name),
        (None, None) => ServerMisbehaved::UnknownType(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(msize: u32, version: &str) -> Result<Step, ServerMisbehaved> {
        let mut frame = Vec::new();
        R::Version { msize, version: version.as_bytes() }.encode(Tag::NONE, Dialect::Plan9, &mut frame);
        Handshake::new(8192, None).handle_frame(&frame)
    }

    #[test]
    fn an_msize_over_the_offer_or_under_the_least_is_the_servers_fault() {
        for got in [0, 100, 4095, 8193, u32::MAX] {
            assert_eq!(answer(got, "9P2000.L"), Err(ServerMisbehaved::Msize { offered: 8192, got }));
        }
        assert_eq!(answer(4096, "9P2000.L"), Ok(Step::Agreed { version: Dialect::Linux.into(), msize: 4096 }));
        assert_eq!(answer(0, "unknown"), Ok(Step::OfferAgain));
    }
}
