//! A file that is there is never cut by who would make one, on servers too where Tcreate does so and nothing forbids it.

use bytes::Bytes;
use ninefold::client::{Client, Follow, Mode, Options};
use ninefold::proto::dialect::Version;
use ninefold::proto::{Dialect, Errno};

use crate::support::{connect, over, ram, settled, tampered};

/// Of Tcreate (open(5)).
const TCREATE: u8 = 114;

/// The bit of Tcreate's mode by which our server refuses what is there.
const EXCLUSIVE: u8 = 0x20;

/// As a server of `.ix` that does not know the bit.
fn clear_the_bit(frame: &mut [u8]) {
    if frame[4] == TCREATE {
        // `size[4] Tcreate tag[2] fid[4] name[s] perm[4] mode[1]`.
        let name = usize::from(u16::from_le_bytes([frame[11], frame[12]]));
        frame[13 + name + 4] &= !EXCLUSIVE;
    }
}

async fn write(client: &Client, name: &[u8], content: &'static [u8]) -> Result<(), Errno> {
    let file = client.root().await.unwrap().create(name, Mode::WRITE, 0o644).await.map_err(|e| e.errno())?;
    assert_eq!(file.write_at(0, Bytes::from_static(content)).await.unwrap() as usize, content.len());
    file.close().await.map_err(|e| e.errno())
}

#[tokio::test]
async fn nothing_is_linked_to_or_moved_into_what_another_connection_has() {
    let server = ram();
    let near = connect(&server, Dialect::Linux, Options::default()).await;
    write(&near, b"f", b"content").await.unwrap();
    for dialect in [Dialect::Linux, Dialect::Unix, Dialect::Plan9] {
        let (one, other) =
            (connect(&server, dialect, Options::default()).await, connect(&server, dialect, Options::default()).await);
        let (root, elsewhere) = (one.root().await.unwrap(), other.root().await.unwrap());
        assert_eq!(root.rename(b"f", &elsewhere, b"g").await.unwrap_err().errno(), Errno::EINVAL);
        if dialect != Dialect::Plan9 {
            let file = other.walk("f", Follow::All).await.unwrap();
            assert_eq!(root.link(b"g", &file).await.unwrap_err().errno(), Errno::EINVAL);
        }
    }
    assert_eq!(near.read("f", 100).await.unwrap(), "content");
}

#[tokio::test]
async fn a_file_that_is_there_is_not_cut_where_the_server_does_not_know_the_bit_that_forbids_it() {
    for dialect in [Dialect::Plan9, Dialect::Unix] {
        let server = ram();
        let near = connect(&server, Dialect::Linux, Options::default()).await;
        write(&near, b"f", b"content").await.unwrap();
        let client = over(
            tampered(&server, clear_the_bit, |_| {}),
            Version { dialect, groups: true, streams: false },
            Options::default(),
        )
        .await;

        assert_eq!(write(&client, b"f", b"x").await, Err(Errno::EEXIST));
        let mut chain = client.chain();
        let (root, _walked) = chain.walk_root(&[]).await.unwrap();
        let made = chain.create(&root, b"f", Mode::REPLACE, 0o644).await.unwrap();
        assert_eq!(made.take().await.unwrap_err().errno(), Errno::EEXIST);
        let made = chain.mkdir(&root, b"f", 0o755).await.unwrap();
        assert_eq!(made.take().await.unwrap_err().errno(), Errno::EEXIST);
        drop((chain, root));
        let root = client.root().await.unwrap();
        assert_eq!(root.mkdir(b"f", 0o755).await.unwrap_err().errno(), Errno::EEXIST);
        if dialect == Dialect::Unix {
            assert_eq!(root.symlink(b"f", b"to").await.unwrap_err().errno(), Errno::EEXIST);
        }
        drop(root);
        assert_eq!(near.read("f", 100).await.unwrap(), "content");

        // Nor where the look for it is refused for another reason than that it is not there.
        let blind = over(
            tampered(
                &server,
                |frame| {
                    clear_the_bit(frame);
                    // Twalk of names: of a fid that there is not.
                    if frame[4] == 110 && frame[15] > 0 {
                        frame[7..11].copy_from_slice(&77_777_u32.to_le_bytes());
                    }
                },
                |_| {},
            ),
            Version { dialect, groups: true, streams: false },
            Options::default(),
        )
        .await;
        assert_eq!(write(&blind, b"f", b"x").await, Err(Errno::EBADF));
        let mut chain = blind.chain();
        let (root, _walked) = chain.walk_root(&[]).await.unwrap();
        let made = chain.create(&root, b"f", Mode::REPLACE, 0o644).await.unwrap();
        assert_eq!(made.take().await.unwrap_err().errno(), Errno::EBADF);
        drop((chain, root));
        assert_eq!(near.read("f", 100).await.unwrap(), "content");

        // What is not there is made as everywhere.
        write(&client, b"new", b"12345").await.unwrap();
        assert_eq!(client.read("new", 100).await.unwrap(), "12345");
        client.mkdir("dir", 0o755).await.unwrap();
        assert!(client.walk("dir", Follow::All).await.unwrap().qid().is_dir());
        settled(&client, 1).await;
    }
}
