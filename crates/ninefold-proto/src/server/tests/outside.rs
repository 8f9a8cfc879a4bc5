//! A Twrite whose data are elsewhere is taken by its first bytes, or not at all.

use super::*;

/// The head of a Twrite of so many bytes, which are elsewhere.
fn head(tag: u16, fid: u32, offset: u64, count: u32) -> Vec<u8> {
    let mut head = (WRITE_HEAD as u32).wrapping_add(count).to_le_bytes().to_vec();
    head.push(118);
    head.extend(tag.to_le_bytes());
    head.extend(fid.to_le_bytes());
    head.extend(offset.to_le_bytes());
    head.extend(count.to_le_bytes());
    head
}

/// Asserts that nothing is taken, whichever way it is asked.
fn is_for_handle_frame(b: &mut Bench, head: &[u8]) {
    let before = b.session.outstanding();
    assert_eq!(b.session.written_file(head), None, "{head:?}");
    assert!(b.session.handle_write(head).is_none(), "{head:?}");
    assert_eq!(b.session.outstanding(), before);
}

#[test]
fn one_that_may_be_carried_out_is_and_is_answered_as_any_other() {
    for dialect in Dialect::ALL {
        let mut b = Bench::attached(dialect);
        let file = b.open(1);
        let head = head(5, 1, 4096, 3000);
        assert_eq!(b.session.written_file(&head), Some(file));
        assert_eq!(b.session.outstanding(), 0, "nothing is taken yet");
        let request = b.session.handle_write(&head).unwrap();
        assert_eq!(format!("{:?}", request.op), format!("WriteOutside {{ file: {file}, offset: 4096, len: 3000 }}"));
        let id = request.id;
        // Others may run beside it, and its tag is in use.
        let read = b.begin("Tread tag 6 fid 1 offset 0 count 10");
        is_for_handle_frame(&mut b, &head);
        b.done(id, Done::Count(2999));
        assert_eq!(b.replies(), ["Rwrite tag 5 count 2999"]);
        b.done(read, Done::Data(Vec::new()));
        b.replies();
        let id = b.session.handle_write(&head).unwrap().id;
        b.done(id, Done::Count(3001));
        let reply = b.replies();
        assert!(reply.len() == 1 && !reply[0].starts_with("Rwrite"), "more than there was: {reply:?}");
    }
}

#[test]
fn one_that_is_flushed_or_whose_session_ends_is_so_as_any_other() {
    let mut b = Bench::attached(Dialect::Linux);
    b.open(1);
    let id = b.session.handle_write(&head(5, 1, 0, 3000)).unwrap().id;
    assert_eq!(b.send("Tflush tag 6 oldtag 5"), Did::Cancel([id].to_vec()));
    b.done(id, Done::Count(3000));
    assert_eq!(b.replies(), ["Rwrite tag 5 count 3000", "Rflush tag 6"]);
    let id = b.session.handle_write(&head(5, 1, 0, 3000)).unwrap().id;
    assert_eq!(b.send("Tversion tag -1 msize 8192 version '9P2000.L'"), Did::CancelAll);
    is_for_handle_frame(&mut b, &head(7, 1, 0, 3000));
    b.done(id, Done::Count(3000));
    b.farewells();
    assert_eq!(b.replies(), ["Rversion tag -1 msize 8192 version '9P2000.L'"]);
}

#[test]
fn one_that_would_be_refused_or_has_to_wait_is_for_handle_frame() {
    let mut b = Bench::new();
    is_for_handle_frame(&mut b, &head(5, 1, 0, 3000));
    let mut b = Bench::attached(Dialect::Linux);
    b.open(1);
    b.walk(2, PLAIN);
    let id = b.begin("Tlopen tag 900 fid 2 flags 0");
    is_for_handle_frame(&mut b, &head(5, 2, 0, 3000));
    b.done(id, Done::Opened { qid: PLAIN });
    b.replies();
    let good = head(5, 1, 0, 3000);
    let mut other_type = good.clone();
    other_type[4] = 116;
    let mut other_size = good.clone();
    other_size[0] += 1;
    for bad in [
        head(5, 9, 0, 3000),
        head(5, 2, 0, 3000),
        head(5, 1, i64::MAX as u64, 3000),
        head(5, 1, u64::MAX, 3000),
        head(5, 1, 0, 8192),
        head(5, 1, 0, u32::MAX - 22),
        other_type,
        other_size,
        good[..22].to_vec(),
        [&good[..], b"data"].concat(),
    ] {
        is_for_handle_frame(&mut b, &bad);
    }
    assert!(b.session.written_file(&good).is_some());
    // A fid of an attribute, whose value the session itself keeps.
    b.walk(3, PLAIN);
    b.ask("Txattrcreate tag 7 fid 3 name 'user.a' attr_size 3000 flags 0");
    is_for_handle_frame(&mut b, &head(5, 3, 0, 3000));
    b.session.hang_up();
    is_for_handle_frame(&mut b, &good);
}

#[test]
fn one_of_a_group_waits_for_those_before_it() {
    let mut b = Bench::attached_as(Dialect::Linux, "9P2000.L.n1");
    b.open(1);
    let first = b.begin("Tread tag 5 fid 1 offset 0 count 10");
    is_for_handle_frame(&mut b, &head(5, 1, 0, 3000));
    b.done(first, Done::Data(Vec::new()));
    b.replies();
    let id = b.session.handle_write(&head(5, 1, 0, 3000)).unwrap().id;
    b.send("Tread tag 5 fid 1 offset 0 count 10");
    assert!(b.member().is_none(), "it is behind the write");
    b.done(id, Done::Count(3000));
    assert!(matches!(b.member(), Some(Did::Execute(_))));
}
