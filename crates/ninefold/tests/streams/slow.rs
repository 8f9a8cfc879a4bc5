//! Files whose file systems are of another kind than a disk's.

use std::path::PathBuf;

use ninefold::server::{Limits, StreamLimits};

use crate::bed::{Bed, all};

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_kernel_does_not_move_goes_through_memory() {
    let dir = tempfile::tempdir().unwrap();
    // It has neither a size nor a way into a pipe.
    let process = PathBuf::from(format!("/proc/{}", std::process::id()));
    let bed = Bed::of(&process, dir, Limits::default(), StreamLimits::default());
    let bytes = std::fs::read(process.join("environ")).unwrap();
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "environ", 0).await;
    for offset in [0, 3] {
        let opened = s.stream(1, true, offset, 0).await.unwrap();
        let got = all(&mut bed.data(&opened.token).await).await.unwrap();
        assert!(got == bytes[offset as usize..]);
        assert_eq!(s.end(opened.id, 0).await.unwrap().0, got.len() as u64);
    }
}
