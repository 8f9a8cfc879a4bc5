//! A file server whose file fails late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use nine::proto::attr::Attr;
use nine::proto::open::Open;
use nine::proto::stat::StatBuf;
use nine::proto::types::WalkElem;
use nine::proto::{Errno, Qid, QidType};
use nine::server::{Answer, Attach, Cx, File, FileServer, Walked};
use nix::libc;

/// A root with one file, which takes what is written and says at the clunk that there was no room. It tells no attributes.
#[derive(Default)]
pub struct Late {
    /// How often its attributes were asked for.
    pub looks: Arc<AtomicUsize>,
    is_file: bool,
    is_open: AtomicBool,
}

impl Late {
    fn qid(&self) -> Qid {
        Qid { kind: if self.is_file { QidType::FILE } else { QidType::DIR }, version: 0, path: self.is_file.into() }
    }
}

impl FileServer for Late {
    fn attach(&self, _: &Cx, _: &Attach) -> Answer<(Qid, Arc<dyn File>)> {
        Answer::ok((self.qid(), Arc::new(Late { looks: self.looks.clone(), ..Late::default() })))
    }
}

impl File for Late {
    fn walk(&self, _: &Cx, elems: &[WalkElem<'_>]) -> Answer<Walked> {
        let is_file = self.is_file || !elems.is_empty();
        let file = Late { looks: self.looks.clone(), is_file, ..Late::default() };
        Answer::ok(Walked { qids: elems.iter().map(|_| file.qid()).collect(), file: Some(Arc::new(file)) })
    }

    fn open(&self, _: &Cx, _: Open) -> Answer<Qid> {
        self.is_open.store(true, Ordering::Relaxed);
        Answer::ok(self.qid())
    }

    fn write(&self, _: &Cx, _: u64, data: Bytes) -> Answer<u32> {
        Answer::ok(data.len() as u32)
    }

    fn getattr(&self, _: &Cx, _: u64) -> Answer<Attr> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        Answer::err(Errno::EOPNOTSUPP)
    }

    fn stat(&self, _: &Cx) -> Answer<StatBuf> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        Answer::err(Errno::EOPNOTSUPP)
    }

    fn clunk(&self, _: &Cx) -> Answer<()> {
        if self.is_open.load(Ordering::Relaxed) {
            Answer::err(Errno(libc::EDQUOT.cast_unsigned()))
        } else {
            Answer::ok(())
        }
    }
}
