//! A reply as it came, and what was asked for it.

use ninefold::proto::message::{self, RERROR, RLERROR};
use ninefold::proto::print::{Data, print};
use ninefold::proto::wire::{HEADER, Reader};
use ninefold::proto::{Dialect, Qid, R, Tag};

use super::verdict::{End, Refusal};

/// Bytes; a longer frame is printed without its data.
const PRINTED_WHOLE: usize = 160;

/// One whole frame from the server, checked to be a message of the dialect or an error.
#[derive(Clone, Debug)]
pub struct Frame {
    pub bytes: Vec<u8>,
    pub dialect: Dialect,
}

impl Frame {
    /// The number of its type.
    pub fn kind(&self) -> u8 {
        self.bytes[4]
    }

    pub fn tag(&self) -> Tag {
        Tag(u16::from_le_bytes([self.bytes[5], self.bytes[6]]))
    }

    fn body(&self) -> &[u8] {
        &self.bytes[HEADER..]
    }

    /// The message; an error in a layout of another dialect is none.
    pub fn message(&self) -> Result<R<'_>, End> {
        R::decode(self.kind(), self.body(), self.dialect)
            .map_err(|e| End::fail(format!("a reply of {}", self.dialect), format!("{}: {e}", self.text())))
    }

    pub fn is_error(&self) -> bool {
        matches!(self.kind(), RERROR | RLERROR)
    }

    /// The error in it, read leniently: before a dialect is agreed on, servers differ in how they tell errors.
    pub fn refusal(&self) -> Option<Refusal> {
        let mut r = Reader::new(self.body());
        match self.kind() {
            RLERROR => Some(Refusal { errno: r.u32("ecode").ok(), text: None }),
            RERROR => {
                let text = r.string("ename").unwrap_or_default().to_vec();
                Some(Refusal { errno: r.u32("errno").ok(), text: Some(text) })
            }
            _ => None,
        }
    }

    pub fn text(&self) -> String {
        text(&self.bytes, self.dialect)
    }

    /// The qids of an Rwalk.
    pub fn wqids(&self) -> Vec<Qid> {
        match self.message() {
            Ok(R::Walk { wqids }) => wqids.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The qid of a reply that has one.
    pub fn qid(&self) -> Qid {
        match self.message() {
            Ok(R::Attach { qid } | R::Open { qid, .. } | R::Create { qid, .. } | R::Lopen { qid, .. })
            | Ok(R::Lcreate { qid, .. } | R::Mkdir { qid } | R::Symlink { qid } | R::Mknod { qid })
            | Ok(R::Auth { aqid: qid } | R::Getattr { qid, .. }) => qid,
            _ => Qid::default(),
        }
    }

    /// The data of Rread or Rreaddir.
    pub fn data(&self) -> Vec<u8> {
        self.message().map(|message| message.payload().to_vec()).unwrap_or_default()
    }

    /// The count of Rwrite.
    pub fn count(&self) -> u32 {
        match self.message() {
            Ok(R::Write { count }) => count,
            _ => 0,
        }
    }
}

/// The one text form, shortened where it would fill the screen.
pub fn text(frame: &[u8], dialect: Dialect) -> String {
    let data = if frame.len() > PRINTED_WHOLE { Data::Elided } else { Data::Whole };
    let mut text = print(frame, dialect, data).to_string();
    if text.len() > 400 {
        let end = (0..=400).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
        text.push_str(&format!("... ({} bytes)", frame.len()));
    }
    text
}

/// The reply to one request: what was asked for, or an error.
#[derive(Clone, Debug)]
pub struct Answer {
    pub frame: Frame,
    /// The number of the request's type.
    pub asked: u8,
}

impl Answer {
    /// The reply, which must be no error.
    pub fn ok(self) -> Result<Frame, End> {
        if self.frame.is_error() {
            return Err(End::fail(format!("R{}", &self.asked_name()[1..]), self.frame.text()));
        }
        Ok(self.frame)
    }

    /// The error, which it must be.
    pub fn refused(self) -> Result<Refusal, End> {
        let got = self.frame.text();
        self.frame.refusal().ok_or_else(|| End::fail(format!("an error for {}", self.asked_name()), got))
    }

    /// The reply; where the server says that it does not have such a thing, the case is skipped.
    pub fn ok_or_skip(self) -> Result<Frame, End> {
        match self.frame.refusal() {
            Some(refusal) if refusal.is_unsupported() => {
                Err(End::skip(format!("the server does not take {}: {}", self.asked_name(), refusal.told())))
            }
            _ => self.ok(),
        }
    }

    /// The error, which it must be, and rather one of `errnos`. In 9P2000 the texts are free.
    pub fn refused_as(self, errnos: &[ninefold::proto::Errno]) -> Result<(), End> {
        let (dialect, asked, got) = (self.frame.dialect, self.asked_name(), self.frame.text());
        let refusal = self.refused()?;
        if dialect == Dialect::Plan9 || refusal.meaning().is_some_and(|errno| errnos.contains(&errno)) {
            return Ok(());
        }
        let names: Vec<String> = errnos.iter().map(|errno| format!("{errno:?}")).collect();
        Err(End::differs(format!("{} for {asked}", names.join(" or ")), got))
    }

    fn asked_name(&self) -> &'static str {
        message::info(self.asked, self.frame.dialect).map_or("Tunknown", |row| row.name)
    }
}
