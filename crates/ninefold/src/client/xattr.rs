//! Extended attributes (xattr(7)); .L only.

use bytes::{Bytes, BytesMut};
use ninefold_proto::client::Parting;
use ninefold_proto::message::Payload;
use ninefold_proto::wire::IO_HEADER;
use ninefold_proto::{Errno, R, T};

use super::error::{Error, Suspicion};
use super::node::{Node, unexpected};

/// The longest value, and the longest list of names (xattr(7): XATTR_SIZE_MAX, XATTR_LIST_MAX).
const SIZE_MAX: u64 = 65_536;

impl Node {
    /// The value of an attribute; ENODATA when there is none of that name.
    pub async fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>, Error> {
        if name.is_empty() {
            return Err(Errno::ENODATA.into());
        }
        self.read_xattr(name).await
    }

    /// The names of all attributes.
    pub async fn list_xattrs(&self) -> Result<Vec<Vec<u8>>, Error> {
        let list = self.read_xattr(b"").await?;
        Ok(list.split(|&b| b == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    async fn read_xattr(&self, name: &[u8]) -> Result<Vec<u8>, Error> {
        self.only_linux("tell extended attributes")?;
        let reply = self.client.call_making(|newfid| T::Xattrwalk { fid: self.fid.fid(), newfid, name }).await?;
        let R::Xattrwalk { size } = reply.message()? else { return Err(unexpected()) };
        let value = reply.made.ok_or_else(unexpected)?;
        if size > SIZE_MAX {
            return Err(Suspicion::XattrSize(size).into());
        }
        let (size, mut got) = (size as usize, BytesMut::new());
        while got.len() < size {
            let count = ((size - got.len()) as u32).min(self.client.msize() - IO_HEADER);
            let data = self.client.call(T::Read { fid: value.fid(), offset: got.len() as u64, count }).await?.data();
            if data.is_empty() {
                // Somebody changed it in between: half a value is none.
                return Err(Errno::EIO.into());
            }
            got.extend_from_slice(&data);
        }
        Ok(got.to_vec())
    }

    /// Sets an attribute, made or replaced. It is set when the fid that took the value is clunked, and an error comes
    /// from there too. An empty value is refused: .L says it as it says that an attribute is to be removed.
    pub async fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Error> {
        self.only_linux("set extended attributes")?;
        if value.is_empty() {
            let dialect = self.client.dialect();
            return Err(Error::Unsupported { what: "set an extended attribute to nothing", dialect });
        }
        let node = self.walk(&[]).await?;
        let (fid, attr_size) = (node.fid.fid(), value.len() as u64);
        self.client.call(T::Xattrcreate { fid, name, attr_size, flags: 0 }).await?;
        let mut sent = 0;
        while sent < value.len() {
            let most = (self.client.msize() - IO_HEADER) as usize;
            let data = Bytes::copy_from_slice(&value[sent..value.len().min(sent + most)]);
            let request = T::Write { fid, offset: sent as u64, data: Payload(&data) };
            match self.client.call_with(request, data.clone()).await?.message()? {
                R::Write { count: 0 } => return Err(Suspicion::NoProgress.into()),
                R::Write { count } => sent += count as usize,
                _ => return Err(unexpected()),
            }
        }
        node.fid.part(Parting::Clunk, &self.client.lane).await
    }

    /// Removes an attribute; ENODATA when there is none of that name. .L says it by setting it to nothing with
    /// XATTR_REPLACE, as Linux's client does.
    pub async fn remove_xattr(&self, name: &[u8]) -> Result<(), Error> {
        /// setxattr(2)'s XATTR_REPLACE.
        const REPLACE: u32 = 2;
        self.only_linux("remove extended attributes")?;
        let node = self.walk(&[]).await?;
        self.client.call(T::Xattrcreate { fid: node.fid.fid(), name, attr_size: 0, flags: REPLACE }).await?;
        node.fid.part(Parting::Clunk, &self.client.lane).await
    }
}
