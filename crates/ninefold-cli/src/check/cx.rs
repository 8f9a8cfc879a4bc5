//! What a case gets: connections to the server, and a directory of its own to work in.

use std::rc::Rc;

use ninefold::proto::types::NONUNAME;
use ninefold::proto::{Dialect, Fid, T};
use ninefold::transport::{Address, dial};
use tokio::time::timeout_at;

use super::conn::{Conn, Shared};
use super::talk::{HERE, ROOT, WRITE};
use super::verdict::End;

/// Bytes: the msize that cases offer where it does not matter; every server known takes it.
pub const MSIZE: u32 = 65_536;

/// Files in the crowded directory: over 300, so that no server lists them in one small reply.
pub const CROWD: usize = 320;

/// Requests on the way while the crowd is made.
const AT_A_TIME: usize = 32;

/// The server under test, and how to attach to it.
#[derive(Debug)]
pub struct Target {
    pub address: Address,
    pub uname: Vec<u8>,
    pub uid: u32,
}

impl Target {
    /// The address's path, name by name.
    pub fn path(&self) -> Vec<Vec<u8>> {
        self.address.path.split(|&b| b == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
    }

    pub fn aname(&self) -> &[u8] {
        self.address.aname.as_deref().unwrap_or_default()
    }

    pub fn attach(&self, fid: Fid) -> T<'_> {
        self.attach_to(fid, self.aname())
    }

    pub fn attach_to<'a>(&'a self, fid: Fid, aname: &'a [u8]) -> T<'a> {
        let n_uname = if self.uname.is_empty() { NONUNAME } else { self.uid };
        T::Attach { fid, afid: Fid::NONE, uname: &self.uname, aname, n_uname }
    }
}

/// See the module. Connections count the case's time from when they are ready.
#[derive(Debug)]
pub struct Cx {
    pub target: Rc<Target>,
    pub dialect: Dialect,
    pub shared: Rc<Shared>,
    /// From the root of the tree to the directory in which cases have theirs.
    scratch: Vec<Vec<u8>>,
    /// The name of the case's directory there.
    own: Vec<u8>,
    made: bool,
    connections: usize,
}

impl Cx {
    pub fn new(target: Rc<Target>, dialect: Dialect, shared: Rc<Shared>, scratch: Vec<Vec<u8>>, own: String) -> Cx {
        Cx { target, dialect, shared, scratch, own: own.into_bytes(), made: false, connections: 0 }
    }

    /// A connection on which nothing was said yet.
    pub async fn dial(&mut self) -> Result<Conn, End> {
        let dialled = timeout_at(self.shared.deadline(), dial(&self.target.address)).await;
        let stream = match dialled {
            Ok(Ok(stream)) => stream,
            Ok(Err(e)) => {
                self.shared.note_closed();
                return Err(End::fail("a connection", format!("the server is gone: {e}")));
            }
            Err(_) => return Err(End::fail("a connection", self.shared.silence())),
        };
        self.connections += 1;
        Ok(Conn::new(stream, self.connections - 1, self.dialect, self.shared.clone()))
    }

    /// A connection that agreed on the case's dialect.
    pub async fn agreed(&mut self, msize: u32) -> Result<Conn, End> {
        let mut conn = self.dial().await?;
        let wanted = self.dialect.as_str();
        match conn.version(msize, wanted).await? {
            Ok((agreed, version)) if version == wanted && agreed <= msize && agreed > 64 => conn.msize = Some(agreed),
            Ok((agreed, version)) => {
                return Err(End::fail(
                    format!("'{wanted}' and an msize up to {msize}"),
                    format!("'{version}' and an msize of {agreed}"),
                ));
            }
            Err(got) => return Err(End::fail(format!("'{wanted}'"), got)),
        }
        self.shared.restart();
        Ok(conn)
    }

    /// A connection with [`ROOT`].
    pub async fn attached(&mut self) -> Result<Conn, End> {
        self.attached_with(MSIZE).await
    }

    pub async fn attached_with(&mut self, msize: u32) -> Result<Conn, End> {
        let mut conn = self.agreed(msize).await?;
        let target = self.target.clone();
        conn.ask(&target.attach(ROOT)).await?.ok()?;
        self.shared.restart();
        Ok(conn)
    }

    /// A connection with [`ROOT`], and [`HERE`]: the case's own directory, empty at first.
    pub async fn here(&mut self) -> Result<Conn, End> {
        self.here_with(MSIZE).await
    }

    pub async fn here_with(&mut self, msize: u32) -> Result<Conn, End> {
        let mut conn = self.agreed(msize).await?;
        self.enter(&mut conn).await?;
        Ok(conn)
    }

    /// Attaches and walks to the case's directory, on a connection that agreed on a dialect.
    pub async fn enter(&mut self, conn: &mut Conn) -> Result<(), End> {
        let target = self.target.clone();
        conn.ask(&target.attach(ROOT)).await?.ok()?;
        go(conn, &self.scratch, HERE).await?;
        let own = self.own.clone();
        if !self.made {
            conn.mkdir(HERE, &own).await?.ok()?;
            self.made = true;
        }
        conn.reach(HERE, HERE, &[&own]).await?;
        self.shared.restart();
        Ok(())
    }

    /// The same, with [`CROWD`] files in the directory, whose names are [`crowd_name`]s.
    pub async fn crowd_with(&mut self, msize: u32) -> Result<Conn, End> {
        let mut conn = self.here_with(msize).await?;
        let names: Vec<Vec<u8>> = (0..CROWD).map(crowd_name).collect();
        for part in names.chunks(AT_A_TIME) {
            self.shared.restart();
            let fids: Vec<Fid> = (0..part.len() as u32).map(|i| Fid(8_000 + i)).collect();
            let walks: Vec<T<'_>> =
                fids.iter().map(|&newfid| T::Walk { fid: HERE, newfid, wnames: Default::default() }).collect();
            all_ok(&mut conn, &walks).await?;
            let creations: Vec<T<'_>> =
                fids.iter().zip(part).map(|(&fid, name)| conn.creation(fid, name, WRITE)).collect();
            all_ok(&mut conn, &creations).await?;
            let clunks: Vec<T<'_>> = fids.iter().map(|&fid| T::Clunk { fid }).collect();
            all_ok(&mut conn, &clunks).await?;
        }
        self.shared.restart();
        self.shared.forget();
        Ok(conn)
    }
}

async fn all_ok(conn: &mut Conn, messages: &[T<'_>]) -> Result<(), End> {
    for answer in conn.ask_all(messages).await? {
        answer.ok()?;
    }
    Ok(())
}

/// Names of different lengths, so that no count of bytes falls on the end of an entry each time.
pub fn crowd_name(i: usize) -> Vec<u8> {
    format!("{i:03}-{}", &"abcdefghijklmnopqrstuvwxyz"[..i % 26]).into_bytes()
}

/// Walks a fid from [`ROOT`] along `path`, in pieces that a walk may have.
pub async fn go(conn: &mut Conn, path: &[Vec<u8>], fid: Fid) -> Result<(), End> {
    conn.reach(ROOT, fid, &[]).await?;
    for part in path.chunks(ninefold::proto::types::MAXWELEM) {
        let names: Vec<&[u8]> = part.iter().map(Vec::as_slice).collect();
        conn.reach(fid, fid, &names).await?;
    }
    Ok(())
}
