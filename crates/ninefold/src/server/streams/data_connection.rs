//! A data connection: the streams that it carries, one behind another, and its end.

use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ninefold_proto::{Errno, Error};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::bare::untaken;
use super::closing::Way;
use super::greeting::{Ear, Heard, Opening, Waits, claim, hear};
use super::kernel_lease::Pledge;
use super::life::{Life, Next, aborted, of_peer};
use super::origin::Origin;
use super::places::Place;
use super::port::Port;
use super::{StreamLimits, closing};
use crate::server::Server;
use crate::server::alarm::{Alarm, until};
use crate::transport::{Peer, Stream};

/// How long the end of a peer is waited for by a server that ends itself: what it has sent leaves all the same. What is sent under a pledge does not, and is waited for longer;
/// both together no longer than a service has to end.
const FAREWELL: Duration = Duration::from_millis(500);
const PARTING: Duration = Duration::from_secs(5);

/// How often it is looked whether a peer has taken what is sent under a pledge, by who waits for something else of it. Who wants the file meanwhile asks for it.
const LOOK: Duration = Duration::from_secs(2);

/// A peer that takes nothing for so long, of what lies in a socket, is not waited for.
const STEP: Duration = Duration::from_secs(1);

/// Carries a stream whose connection comes to a port.
pub(super) async fn carry_from_port(server: Arc<Server>, port: Port, peer: Peer, life: Box<Life>) {
    let abort = life.abort();
    let accepted = tokio::select! {
        biased;
        () = abort.cancelled() => Err(aborted()),
        accepted = timeout(server.streams.limits.port, port.accept(&server.streams)) => match accepted {
            Ok(accepted) => accepted.map_err(|error| of_peer(&error)),
            Err(_) => Err(Error::with_text(Errno::ETIMEDOUT, "nobody came to the stream's port in time")),
        },
    };
    carry(server, accepted.map(Way::from), peer, life).await;
}

/// Carries a stream on the connection that arrived, and those that come behind it. All of them run here: to wake a task for each costs as much as
/// what else the server does for a short one.
pub(super) async fn carry(server: Arc<Server>, arrived: Result<Way, Error>, peer: Peer, life: Box<Life>) {
    carry_on(server, arrived, peer, life, Pledge::default()).await;
}

async fn carry_on(server: Arc<Server>, arrived: Result<Way, Error>, peer: Peer, life: Box<Life>, pledge: Pledge) {
    let none_is_left = carry_while(|_, _| true, &server, arrived, &peer, life, pledge, None).await;
    debug_assert!(none_is_left.is_none());
}

/// The same among others in one task, which has the alarm, for as long as that costs no thread much. Then it goes on in a task of its own.
pub(super) async fn carry_among(server: Arc<Server>, way: Way, peer: Peer, life: Box<Life>, alarm: Arc<Alarm>) {
    let costs_little = |life: &Life, way: &Result<Way, Error>| way.as_ref().is_ok_and(|way| life.may_be_lent(way));
    let left = carry_while(costs_little, &server, Ok(way), &peer, life, Pledge::default(), Some(&alarm)).await;
    if let Some((arrived, life, pledge)) = left {
        let goes_on = carry_on(server.clone(), arrived, peer, life, pledge);
        drop(server.streams.tasks.spawn(goes_on));
    }
}

/// Carries streams for as long as they `may` be carried here. The one that may not is left, with what it comes on; `None` behind the last.
async fn carry_while(
    may: impl Fn(&Life, &Result<Way, Error>) -> bool,
    server: &Server,
    arrived: Result<Way, Error>,
    peer: &Peer,
    mut life: Box<Life>,
    pledge: Pledge,
    alarm: Option<&Arc<Alarm>>,
) -> Option<(Result<Way, Error>, Box<Life>, Pledge)> {
    let mut pledge = pledge;
    // Dropped before the pledge.
    let mut arrived = arrived;
    loop {
        if !may(&life, &arrived) {
            return Some((arrived, life, pledge));
        }
        match life.run(arrived, &mut pledge, alarm).await {
            Next::Another(way) => match next(server, way, &mut pledge, peer, alarm).await {
                Some((way, another)) => (arrived, life) = (Ok(way), another),
                None => return None,
            },
            Next::Parts(stream) => {
                let waits = Waits::begin(server, peer, alarm.map(|alarm| &**alarm));
                end(server, stream, &mut pledge, peer, waits).await;
                return None;
            }
            Next::IsTaken(stream, place) => {
                let_take(server, stream, &mut pledge, peer, place).await;
                return None;
            }
            Next::Gone => return None,
        }
    }
}

/// Hears which stream is to come behind another; `None` where none does. Then the connection is ended: its peer may not have taken all of what was
/// sent, and gets it whatever comes.
async fn next(
    server: &Server,
    way: Way,
    pledge: &mut Pledge,
    peer: &Peer,
    alarm: Option<&Arc<Alarm>>,
) -> Option<(Way, Box<Life>)> {
    let StreamLimits { idle, .. } = server.streams.limits;
    let waits = Waits::begin(server, peer, alarm.map(|alarm| &**alarm));
    let mut opening = Opening::default();
    // Of many that are here already others have their turn between them.
    tokio::task::coop::consume_budget().await;
    // Its token has mostly come before: then there is nothing to wait for.
    let is_at_its_end = !server.draining.has_begun() && opening.take(&way);
    let (heard, mut way) = match opening.heard() {
        Some(heard) => (heard, way),
        None => {
            way.pause(pledge);
            if is_at_its_end && can_be_left(server, &way, pledge, peer) {
                return None;
            }
            let deadline = Instant::now() + idle;
            let (heard, way) = if let Some(tcp) = way.unwatched() {
                let hears = hear(server, Ear::Unwatched(tcp), &waits, deadline, opening);
                (redeeming(hears, pledge, Some(tcp.as_fd()), true, waits.alarm).await, way)
            } else {
                let outlet = if pledge.is_held() { way.copy() } else { None };
                let mut stream = way.into_stream().ok()?;
                let hears = hear(server, Ear::Stream(&mut stream), &waits, deadline, opening);
                let outlet = outlet.as_ref().map(AsFd::as_fd);
                (redeeming(hears, pledge, outlet, true, waits.alarm).await, Way::from(stream))
            };
            // Dropped now, it is reset: the peer did not take what it had to.
            (heard?, way)
        }
    };
    match heard {
        Heard::Stream(said) => {
            let outlet = if pledge.is_held() { way.copy() } else { None };
            let outlet = outlet.as_ref().map(AsFd::as_fd);
            // One that came before its Tstream waits for that.
            let claims = claim(server, way, peer, &said, &waits);
            match redeeming(claims, pledge, outlet, false, waits.alarm).await? {
                Ok(another) => return Some(another),
                Err(back) => way = back?,
            }
        }
        Heard::Session(bytes) if bytes.is_empty() => {
            if can_be_left(server, &way, pledge, peer) {
                return None;
            }
        }
        Heard::Session(_) => {
            server.streams.refuse();
            server
                .streams
                .tell(peer, "data connection closed: what came behind a stream is not the preface of another");
        }
        Heard::Silent => {
            server.streams.unheard.fetch_add(1, Ordering::Relaxed);
            debug!(%peer, "data connection closed: no other stream came behind the one that it was for");
        }
        Heard::Ended => {}
    }
    end_if_taken(&way, pledge);
    way.pause(pledge);
    end(server, way.into_stream().ok()?, pledge, peer, waits).await;
    None
}

/// Whether nothing more is to be done for a connection that is paused.
fn can_be_left(server: &Server, way: &Way, pledge: &mut Pledge, peer: &Peer) -> bool {
    // What lies in a connection that was given room for it is waited for.
    let left = || way.unwatched().and_then(|tcp| untaken(tcp.as_fd())).unwrap_or(0);
    if !way.can_be_left() || pledge.room.is_held() && left() > closing::SOME {
        return false;
    }
    if pledge.is_held() {
        end_if_taken(way, pledge);
        if pledge.is_held() {
            return false;
        }
        way.close_by_end();
    }
    has_sent(server, peer, way.unwatched());
    true
}

/// The peer has taken what it had to, or is about to: how fast that was is known to the connections that it has next.
fn has_sent(server: &Server, peer: &Peer, tcp: Option<&impl AsFd>) {
    if let Some(tcp) = tcp {
        server.streams.send_buffers.has_sent(Origin::of(peer), tcp.as_fd());
    }
}

fn end_if_taken(way: &Way, pledge: &mut Pledge) {
    if let Way::Bare(bare) = way {
        pledge.end_if_taken(bare);
    }
}

/// What comes of `waits`; meanwhile the pledge ends, when it is asked back or [`LOOK`] is over. `None` where it is asked back and the peer takes nothing: the connection is to
/// be closed. `outlet` is its descriptor, or a copy, where one could be had. `ends`: without a pledge it is closed by an end.
async fn redeeming<T>(
    waits: impl Future<Output = T>,
    pledge: &mut Pledge,
    outlet: Option<BorrowedFd<'_>>,
    ends: bool,
    alarm: Option<&Alarm>,
) -> Option<T> {
    let mut waits = pin!(waits);
    while pledge.is_held() {
        tokio::select! {
            biased;
            came = &mut waits => return Some(came),
            _ = until(alarm, Instant::now() + LOOK, pledge.asked_back()) => {}
        }
        match &outlet {
            Some(outlet) => pledge.end_if_taken(outlet),
            None if pledge.is_asked_back() => return None,
            None => continue,
        }
        if let (true, Some(outlet)) = (pledge.is_asked_back(), &outlet) {
            tokio::select! {
                biased;
                redeemed = pledge.redeem(outlet) => redeemed.ok()?,
                came = &mut waits => return Some(came),
            }
        }
        if let (true, false, Some(outlet)) = (ends, pledge.is_held(), &outlet) {
            closing::linger(Some(*outlet), None);
        }
    }
    Some(waits.await)
}

/// Parts with a data connection whose last stream went well, and in which tokens of others may lie. It is closed by an end, when its peer has taken
/// all, or takes none of it for as long as one may say nothing, or takes as long as on a stream on which nothing moves. Until then it has a place among
/// those that say nothing, and makes way as they do.
async fn end(server: &Server, mut stream: Stream, pledge: &mut Pledge, peer: &Peer, waits: Waits<'_>) {
    let hurry = async {
        tokio::select! {
            () = waits.evicted.cancelled() => Duration::ZERO,
            patience = drained(server) => patience,
        }
    };
    closing::let_end(&mut stream, pledge, server.limits.handshake, server.streams.limits.idle, hurry).await;
    has_sent(server, peer, closing::tcp_of(&stream));
    let_leave(server, closing::tcp_of(&stream), pledge, waits.evicted.cancelled()).await;
    // Before its place is free.
    drop(stream);
}

/// The end of a connection behind its only stream: that one's place is free when the peer has taken it, or takes nothing. With a pledge that is as long as on a stream on which nothing moves.
async fn let_take(server: &Server, mut stream: Stream, pledge: &mut Pledge, peer: &Peer, place: Place) {
    closing::let_end(&mut stream, pledge, STEP, server.streams.limits.idle, drained(server)).await;
    has_sent(server, peer, closing::tcp_of(&stream));
    // What is left of those that were given room is bounded by that.
    drop(place);
    let_leave(server, closing::tcp_of(&stream), pledge, std::future::pending()).await;
}

/// Has the peer take what it was given room for, if it was.
async fn let_leave(server: &Server, tcp: Option<&TcpStream>, pledge: &Pledge, makes_way: impl Future<Output = ()>) {
    if pledge.room.is_held() {
        let (step, longest) = (server.limits.handshake, server.streams.limits.idle);
        closing::let_leave(tcp, (step, longest), makes_way, server.draining.begun()).await;
    }
}

/// The server has waited long enough behind its end, but for those that must have taken all: how long for these.
async fn drained(server: &Server) -> Duration {
    server.draining.begun().await;
    tokio::time::sleep(FAREWELL).await;
    PARTING
}
