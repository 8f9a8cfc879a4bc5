//! Streams where the server has none: the same bytes in messages.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ninefold::client::{Client, Error, Fault, File, Mode, Options, Stream};
use ninefold::proto::message::Payload;
use ninefold::proto::{Dialect, Errno, R, T};
use ninefold::transport::memory;
use tokio::time::{Instant, timeout};

use crate::fake::{self, content};
use crate::support::{BUFFER, SOON, connect, link, over, ram, settled};

const SIZE: usize = 1_000_001;

async fn made(client: &Client, name: &[u8]) -> File {
    client.root().await.unwrap().create(name, Mode::READ_WRITE, 0o644).await.unwrap()
}

/// Reads to the end, by pieces of `piece` bytes.
async fn read_all(stream: &mut Stream, piece: usize) -> Result<Bytes, Error> {
    let (mut all, mut buffer) = (BytesMut::new(), vec![0; piece]);
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(all.freeze()),
            read => all.extend_from_slice(&buffer[..read]),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_stream_writes_another_reads_in_every_dialect() {
    for dialect in Dialect::ALL {
        let client = connect(&ram(), dialect, Options { msize: 8192, ..Options::default() }).await;
        let file = made(&client, b"f").await;
        let mut stream = file.stream_write(0, Some(SIZE as u64)).await.unwrap();
        for piece in content(0, SIZE).chunks(100_000) {
            stream.write(piece).await.unwrap();
        }
        assert_eq!(stream.moved(), SIZE as u64);
        assert_eq!(stream.finish().await.unwrap(), SIZE as u64);
        for (offset, length) in
            [(0, None), (5, Some(10)), (999_999, None), (17, Some(2_000_000)), (7, Some(0)), (1 << 40, None)]
        {
            let mut stream = file.stream_read(offset, length).await.unwrap();
            let end = (SIZE as u64).min(offset.saturating_add(length.unwrap_or(u64::MAX)));
            let wanted = content(offset, end.saturating_sub(offset) as usize);
            assert!(read_all(&mut stream, 30_000).await.unwrap() == wanted, "{dialect} {offset} {length:?}");
            assert!(stream.is_in_band());
            assert_eq!(stream.finish().await.unwrap(), wanted.len() as u64);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_goes_on_when_its_file_is_closed_and_its_fid_ends_with_it() {
    let client = connect(&ram(), Dialect::Linux, Options::default()).await;
    let file = made(&client, b"f").await;
    let held = client.held().0;
    let mut stream = file.stream_write(0, None).await.unwrap();
    file.close().await.unwrap();
    stream.write_bytes(content(0, SIZE)).await.unwrap();
    assert_eq!(client.held().0, held);
    assert_eq!(stream.finish().await.unwrap(), SIZE as u64);
    settled(&client, held - 1).await;
    assert!(client.read("/f", SIZE).await.unwrap() == content(0, SIZE));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_a_stream_has_open_is_not_removed_by_its_fid() {
    let client = connect(&ram(), Dialect::Linux, Options::default()).await;
    let file = made(&client, b"f").await;
    let stream = file.stream_write(0, None).await.unwrap();
    assert_eq!(file.remove().await.unwrap_err().errno(), Errno::EBUSY);
    stream.finish().await.unwrap();
    assert_eq!(client.metadata("/f", ninefold::client::Follow::All).await.unwrap().size, 0);
}

#[tokio::test(start_paused = true)]
async fn several_streams_of_one_file_have_each_a_place_of_its_own() {
    let client = connect(&ram(), Dialect::Linux, Options::default()).await;
    let file = made(&client, b"f").await;
    let (mut head, mut tail) = (file.stream_write(0, None).await.unwrap(), file.stream_write(500, None).await.unwrap());
    for at in (0..500).step_by(100) {
        tail.write(&content(500 + at, 100)).await.unwrap();
        head.write(&content(at, 100)).await.unwrap();
    }
    assert_eq!((head.finish().await.unwrap(), tail.finish().await.unwrap()), (500, 500));
    let (mut one, mut other) = (file.stream_read(0, None).await.unwrap(), file.stream_read(250, None).await.unwrap());
    let mut buffer = [0; 100];
    assert_eq!(one.read(&mut buffer).await.unwrap(), 100);
    assert!(read_all(&mut other, 7).await.unwrap() == content(250, 750));
    assert!(read_all(&mut one, 1000).await.unwrap() == content(100, 900));
}

#[tokio::test(start_paused = true)]
async fn a_stream_takes_no_more_than_the_length_that_it_was_given_and_only_one_way() {
    let client = connect(&ram(), Dialect::Linux, Options::default()).await;
    let file = made(&client, b"f").await;
    let errno = |e: Error| e.errno();
    let mut stream = file.stream_write(0, Some(5)).await.unwrap();
    stream.write(b"1234").await.unwrap();
    assert_eq!(errno(stream.write(b"56").await.unwrap_err()), Errno::EFBIG);
    stream.write(b"5").await.unwrap();
    assert_eq!(errno(stream.read(&mut [0]).await.unwrap_err()), Errno::EBADF);
    assert_eq!(stream.finish().await.unwrap(), 5);
    let mut stream = file.stream_read(0, None).await.unwrap();
    assert_eq!(errno(stream.write(b"x").await.unwrap_err()), Errno::EBADF);
    assert_eq!(stream.read(&mut [0; 9]).await.unwrap(), 5);
    assert_eq!(errno(file.stream_write(u64::MAX, Some(1)).await.unwrap_err()), Errno::EFBIG);
    file.close().await.unwrap();
    let reads = client.walk("/f", ninefold::client::Follow::All).await.unwrap().open(Mode::READ).await.unwrap();
    assert_eq!(errno(reads.stream_write(0, None).await.unwrap_err()), Errno::EBADF);
    let writes = client.walk("/f", ninefold::client::Follow::All).await.unwrap().open(Mode::WRITE).await.unwrap();
    assert_eq!(errno(writes.stream_read(0, None).await.unwrap_err()), Errno::EBADF);
}

#[tokio::test(start_paused = true)]
async fn what_was_written_behind_is_in_the_file_before_a_stream_reads_it() {
    let client = connect(&ram(), Dialect::Linux, Options::default()).await;
    let file = made(&client, b"f").await;
    file.write_behind(0, content(0, SIZE)).await.unwrap();
    let mut stream = file.stream_read(0, None).await.unwrap();
    assert!(read_all(&mut stream, 100_000).await.unwrap() == content(0, SIZE));
}

#[tokio::test(start_paused = true)]
async fn a_stream_over_a_distance_takes_no_more_time_than_the_reads_of_a_file_whose_size_is_known() {
    const BYTES: u64 = 16 << 20;
    let mut took = Vec::new();
    for streams in [false, true] {
        let (ours, theirs) = link(Duration::from_millis(20));
        fake::serve(theirs, BYTES, |_, _, _| false);
        let client = over(ours, Dialect::Linux, Options { msize: (64 << 10) + 24, ..Options::default() }).await;
        let node = client.walk("/f", ninefold::client::Follow::All).await.unwrap();
        let metadata = node.metadata().await.unwrap();
        let file = node.open(Mode::READ).await.unwrap();
        let began = Instant::now();
        if streams {
            let mut stream = file.stream_read(0, None).await.unwrap();
            assert!(read_all(&mut stream, 1 << 20).await.unwrap() == content(0, BYTES as usize));
            assert_eq!(stream.finish().await.unwrap(), BYTES);
        } else {
            let mut reader = file.reader(0, Some(&metadata));
            while reader.next().await.unwrap().is_some() {}
        }
        // In round trips: time is virtual.
        took.push(began.elapsed().as_millis() / 40);
    }
    // The stream learns the size beside its first read.
    assert!(took[1] <= took[0] + 1, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_cut_while_a_stream_reads_it_does_not_look_whole() {
    let (ours, theirs) = memory::pair(BUFFER);
    fake::serve(theirs, SIZE as u64, move |replies, tag, request| {
        let T::Read { offset, count, .. } = *request else { return false };
        let count = (count as u64).min(500_000_u64.saturating_sub(offset));
        replies.send(tag, R::Read { data: Payload(&content(offset, count as usize)) });
        true
    });
    let client = over(ours, Dialect::Linux, Options { msize: 8192, ..Options::default() }).await;
    let node = client.walk("/f", ninefold::client::Follow::All).await.unwrap();
    let file = node.open(Mode::READ).await.unwrap();
    let mut stream = file.stream_read(0, None).await.unwrap();
    assert_eq!(timeout(SOON, read_all(&mut stream, 9000)).await.unwrap().unwrap().len(), 500_000);
    assert!(matches!(stream.finish().await, Err(Error::Stream(Fault::Changed))));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_write_is_told_at_the_end_at_the_latest() {
    let (ours, theirs) = memory::pair(BUFFER);
    fake::serve(theirs, 1, move |replies, tag, request| {
        let full = matches!(*request, T::Write { offset, .. } if offset > 100_000);
        if full {
            replies.error(tag, Errno::ENOSPC);
        }
        full
    });
    let client = over(ours, Dialect::Linux, Options { msize: 8192, ..Options::default() }).await;
    let node = client.walk("/f", ninefold::client::Follow::All).await.unwrap();
    let file = node.open(Mode::WRITE).await.unwrap();
    let mut stream = file.stream_write(0, None).await.unwrap();
    let _ = stream.write_bytes(content(0, SIZE)).await;
    assert_eq!(stream.finish().await.unwrap_err().errno(), Errno::ENOSPC);
}
