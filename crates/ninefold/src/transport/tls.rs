//! TCP with TLS: what passes is sealed, and the client knows whom it talks to. The server does not know the client by it.
//!
//! A server is an [`Identity`], a certificate and its key. A client that is given the certificate's [`Pin`] takes that certificate
//! and no other, whatever stands in it; one that is given none takes what this machine's certificate authorities have signed
//! for the host's name.
//!
//! A server's handshake is made by the first read or write of the accepted stream, so that no client holds up another.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin as Pinned;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{Accept, TlsAcceptor, TlsConnector, client, server};

/// The SHA-256 digest (FIPS 180-4) of a certificate as DER has it: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pin([u8; 32]);

impl Pin {
    fn of(certificate: &[u8]) -> Pin {
        let mut pin = [0; 32];
        pin.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Pin(pin)
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Pin {
    type Err = ();

    fn from_str(text: &str) -> Result<Pin, ()> {
        let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64).ok_or(())?;
        let mut pin = [0; 32];
        for (byte, pair) in pin.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(());
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Ok(Pin(pin))
    }
}

/// What a server shows to its clients.
#[derive(Clone)]
pub struct Identity {
    config: Arc<ServerConfig>,
    pin: Pin,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.pin)
    }
}

/// The file of [`Identity::kept`]: the key is in it, so nobody else may read it.
const FILE: &str = "server.pem";

impl Identity {
    /// A certificate, with those that lead to its authority behind it, and its key, in PEM; both may be in one file.
    pub fn from_files(certificates: &Path, key: &Path) -> io::Result<Identity> {
        let named = |path: &Path, e: &dyn fmt::Display| io::Error::other(format!("{}: {e}", path.display()));
        let read = |path: &Path| std::fs::read(path).map_err(|e| io::Error::new(e.kind(), named(path, &e)));
        Identity::from_pem(&read(certificates)?, &read(key)?).map_err(|(at_key, e)| {
            let path = if at_key { key } else { certificates };
            named(path, &e)
        })
    }

    /// `true` with an error: it is the key's.
    fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Identity, (bool, String)> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        let chain = chain.map_err(|e| (false, e.to_string()))?;
        let leaf = chain.first().ok_or((false, "there is no certificate in it: expected PEM".to_owned()))?;
        let pin = Pin::of(leaf);
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|e| (true, format!("there is no private key in it: expected PEM: {e}")))?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .and_then(|versions| versions.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|e| (true, e.to_string()))?;
        Ok(Identity { config: Arc::new(config), pin })
    }

    /// The one that is kept in `dir`, which is made at the first call, signed by itself.
    pub fn kept(dir: &Path) -> io::Result<Identity> {
        use std::os::unix::fs::DirBuilderExt;
        let path = dir.join(FILE);
        if !path.exists() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            let made = rcgen::generate_simple_self_signed(vec!["ninefold".to_owned()]).map_err(io::Error::other)?;
            let mut file = tempfile::NamedTempFile::new_in(dir)?;
            io::Write::write_all(
                &mut file,
                format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem()).as_bytes(),
            )?;
            file.as_file().sync_all()?;
            match file.persist_noclobber(&path) {
                // Another server was first: that one's is used.
                Err(e) if e.error.kind() != io::ErrorKind::AlreadyExists => return Err(e.error),
                _ => {}
            }
        }
        Identity::from_files(&path, &path)
    }

    /// Where [`Identity::kept`] is looked for when nothing is said: `$XDG_STATE_HOME/ninefold`, or `~/.local/state/ninefold`.
    pub fn dir() -> Option<PathBuf> {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
        Some(state.join("ninefold"))
    }

    /// What a client says to take this server and no other.
    pub fn pin(&self) -> Pin {
        self.pin
    }

    pub(super) fn accept(&self, stream: TcpStream) -> Tls {
        Tls::Accepting(Box::new(TlsAcceptor::from(self.config.clone()).accept(stream)))
    }
}

/// The cipher suites, and who checks signatures.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())).clone()
}

/// Takes the pinned certificate: its dates and names say nothing more, but who shows it must have the key.
#[derive(Debug)]
struct Pinning(Pin);

impl ServerCertVerifier for Pinning {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = Pin::of(certificate);
        if shown == self.0 {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General(format!(
            "this is another server: its certificate is {shown}, and {} was asked for; \
             if the server has a new certificate, ask whoever runs it",
            self.0
        )))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// What a client takes: the certificate that is pinned, or what the authorities of this machine signed.
fn client_config(pin: Option<Pin>) -> io::Result<ClientConfig> {
    let versions = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    if let Some(pin) = pin {
        let pinned = versions.dangerous().with_custom_certificate_verifier(Arc::new(Pinning(pin)));
        return Ok(pinned.with_no_client_auth());
    }
    let mut roots = RootCertStore::empty();
    // Those that cannot be read are as good as not there: what they signed is refused.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}

/// Shakes hands over a connection that was made to `host`. Who waits for it bounds it.
pub(super) async fn connect(host: &str, pin: Option<Pin>, stream: TcpStream) -> io::Result<Tls> {
    let config = Arc::new(client_config(pin)?);
    let host = host.split_once('%').map_or(host, |(number, _)| number);
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "TLS knows no such host name"))?;
    Terms { config, name, pin }.connect(stream).await
}

/// Whom a client takes for its server: the same for all connections of a session.
#[derive(Clone)]
pub struct Terms {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    pin: Option<Pin>,
}

impl fmt::Debug for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Terms({:?})", self.name)
    }
}

impl Terms {
    /// Shakes hands over another connection to the same server.
    pub(crate) async fn connect(self, stream: TcpStream) -> io::Result<Tls> {
        let connected = TlsConnector::from(self.config.clone()).connect(self.name.clone(), stream).await;
        let stream = connected.map_err(|e| {
            let advice = match e.get_ref().and_then(|e| e.downcast_ref()) {
                Some(Error::InvalidCertificate(_)) if self.pin.is_none() => {
                    ": if the server's certificate is its own, add the '?pin=sha256:…' that it prints to the address"
                }
                _ => "",
            };
            io::Error::new(e.kind(), format!("TLS: {e}{advice}"))
        })?;
        Ok(Tls::Client(Box::new((stream, self))))
    }
}

/// A connection, of which a server's may have the handshake before it. `shutdown` says that nothing follows, and closes the way out.
pub enum Tls {
    Client(Box<(client::TlsStream<TcpStream>, Terms)>),
    Accepting(Box<Accept<TcpStream>>),
    Server(Box<server::TlsStream<TcpStream>>),
    /// The handshake failed, and was told.
    Failed,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// What both ends of a connection can do.
trait Open: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Open for S {}

impl Tls {
    /// Of a client's connection: where it leads, and how another is made.
    pub(crate) fn again(&self) -> Option<(SocketAddr, Terms)> {
        let Tls::Client(client) = self else { return None };
        let (stream, terms) = &**client;
        Some((stream.get_ref().0.peer_addr().ok()?, terms.clone()))
    }

    /// The connection below; `None` where the handshake failed.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Tls::Client(client) => Some(client.0.get_ref().0),
            Tls::Accepting(accept) => accept.get_ref(),
            Tls::Server(stream) => Some(stream.get_ref().0),
            Tls::Failed => None,
        }
    }

    /// `None`: hands were not shaken.
    fn open(&mut self) -> Option<Pinned<&mut dyn Open>> {
        match self {
            Tls::Client(client) => Some(Pinned::new(&mut client.0)),
            Tls::Server(stream) => Some(Pinned::new(&mut **stream)),
            Tls::Accepting(_) | Tls::Failed => None,
        }
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pinned<&mut dyn Open>>> {
        if let Tls::Accepting(accept) = self {
            *self = match ready!(Pinned::new(accept.as_mut()).poll(cx)) {
                Ok(stream) => Tls::Server(Box::new(stream)),
                Err(e) => {
                    *self = Tls::Failed;
                    return Poll::Ready(Err(io::Error::new(e.kind(), format!("TLS: {e}"))));
                }
            };
        }
        Poll::Ready(self.open().ok_or_else(|| io::ErrorKind::NotConnected.into()))
    }
}

impl AsyncRead for Tls {
    fn poll_read(self: Pinned<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.get_mut().poll_open(cx))?.poll_read(cx, buf)
    }
}

impl AsyncWrite for Tls {
    fn poll_write(self: Pinned<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.get_mut().poll_open(cx))?.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pinned<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.get_mut().poll_open(cx))?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pinned<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().open().map_or(Poll::Ready(Ok(())), |stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pinned<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().open().map_or(Poll::Ready(Ok(())), |stream| stream.poll_shutdown(cx))
    }
}
