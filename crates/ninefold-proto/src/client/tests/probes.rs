//! What is asked for so that something comes behind what may be lost.

use super::*;

#[test]
fn a_probe_flushes_its_own_tag_and_nobody_waits_for_it() {
    let mut b = Bench::attached(Version::N1);
    b.session.probe();
    b.session.probe();
    let sent = b.sent();
    assert_eq!(sent.len(), 1, "{sent:?}");
    let (first, line) = &sent[0];
    assert_eq!(line, &format!("Tflush oldtag {first}"));
    assert_eq!((b.session.unattended(), b.session.is_idle(), b.session.is_done()), (0, true, true));
    // No more than some are outstanding, and calls have none of their room.
    for _ in 1..8 {
        b.session.probe();
        assert_eq!(b.sent().len(), 1);
    }
    b.session.probe();
    b.sent_nothing();
    let tag = b.call("Tclunk fid 0");
    assert!(tag != *first);
    b.reply(tag, "Rclunk");
    // Whatever is answered.
    assert_eq!(b.reply(*first, "Rlerror ecode 5 retry_ms 0 text ''"), Told::Settled);
    b.sent_nothing();
    b.session.probe();
    let (again, _) = b.sent().remove(0);
    assert_eq!(b.reply(again, "Rflush"), Told::Settled);
    assert!(b.session.is_idle());
}
