//! placeholder until merge
use super::User;
use crate::transport::Peer;
use ninefold_proto::Error;
#[derive(Clone, Debug)]
pub enum Policy {
    AsProcess,
    Squash(User),
    TrustUids,
}
impl Policy {
    pub fn decide(&self, _peer: &Peer, _uname: &[u8], _n_uname: u32) -> Result<User, Error> {
        Ok(User::of_process())
    }
}
