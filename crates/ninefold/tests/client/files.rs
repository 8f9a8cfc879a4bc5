//! Operations on files and names, in each dialect.

use std::time::Duration;

use bytes::Bytes;
use ninefold::client::{Error, FileType, Follow, Mode, Options};
use ninefold::proto::attr::SetAttr;
use ninefold::proto::{Dialect, Errno};

use crate::support::{connect, ram};

#[tokio::test(start_paused = true)]
async fn files_are_made_written_read_renamed_and_removed_alike_in_every_dialect() {
    for dialect in Dialect::ALL {
        let client = connect(&ram(), dialect, Options::default()).await;
        let root = client.root().await.unwrap();
        root.mkdir(b"d", 0o755).await.unwrap();
        let dir = client.walk("/d", Follow::All).await.unwrap();
        let file = dir.walk(&[]).await.unwrap().create(b"f", Mode::READ_WRITE, 0o640).await.unwrap();
        assert_eq!(file.write_at(0, Bytes::from_static(b"hello")).await.unwrap(), 5);
        assert_eq!(file.read_at(1, 100).await.unwrap(), "ello");
        file.close().await.unwrap();
        let node = client.walk("/d/./x/../f", Follow::All).await.unwrap();
        node.set(&SetAttr { mode: Some(0o600), size: Some(3), ..SetAttr::default() }).await.unwrap();
        let meta = node.metadata().await.unwrap();
        assert_eq!((meta.kind, meta.mode, meta.size), (FileType::File, 0o600, 3), "{dialect}");
        dir.rename(b"f", &dir, b"g").await.unwrap();
        let names: Vec<_> = dir.read_dir().await.unwrap().all().await.unwrap();
        assert_eq!(names.iter().map(|entry| entry.name.as_slice()).collect::<Vec<_>>(), [b"g"]);
        assert_eq!(root.unlink(b"d", true).await.unwrap_err().errno(), Errno::ENOTEMPTY);
        dir.unlink(b"g", false).await.unwrap();
        drop(dir);
        root.unlink(b"d", true).await.unwrap();
        assert!(client.walk("/d", Follow::All).await.unwrap_err().is_not_found());
        drop((node, root));
        client.close(Duration::from_secs(1)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_no_file_can_have_is_not_sent() {
    for dialect in Dialect::ALL {
        let client = connect(&ram(), dialect, Options::default()).await;
        for name in [&b"a/b"[..], b"", b"..", b"a\0", &[b'n'; 256]] {
            let root = client.root().await.unwrap();
            assert!(matches!(root.mkdir(name, 0o755).await, Err(Error::Name(_))));
            assert!(matches!(root.create(name, Mode::WRITE, 0o644).await, Err(Error::Name(_))));
        }
    }
}
