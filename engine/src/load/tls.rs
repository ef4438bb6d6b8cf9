//! TLS of one connection (rustls, ring): converts between records and plain bytes. Certificates are verified against
//! the Mozilla roots, a CA file, or not at all. No sockets beyond one read or write call, no time.

use std::io::{self, Read, Write};
use std::sync::{Arc, Once};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::contract::spec::Tls;
use crate::load::problem::Problem;
use crate::load::sys;

/// Bytes that TLS adds to the plain bytes of one record.
const RECORD_BYTES: usize = 32;

/// The configuration that every connection shares.
pub struct TlsPlan {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsPlan {
    /// # Errors
    /// Kind `spec`: the CA file cannot be read, or the name cannot be verified.
    pub fn new(tls: &Tls, host: &str) -> Result<TlsPlan, Problem> {
        let name = tls.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| Problem::spec("target.tls.server_name", format!("{name:?} is no host name")))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Problem::new("internal", format!("TLS: {error}")))?;
        let mut config = if tls.insecure {
            let verifier = Arc::new(AcceptAny { provider });
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        } else {
            builder.with_root_certificates(roots(tls)?).with_no_client_auth()
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Every connection pays for a full handshake, as those of different users do. Resuming would favour servers
        // of one process: each process knows only the sessions that it made itself.
        config.resumption = Resumption::disabled();
        Ok(TlsPlan { config: Arc::new(config), name })
    }

    pub fn connection(&self) -> Result<TlsConnection, TlsError> {
        let mut inner = ClientConnection::new(self.config.clone(), self.name.clone()).map_err(|_| TlsError::Broken)?;
        inner.set_buffer_limit(None);
        Ok(TlsConnection { inner, waiting_bytes: 0 })
    }
}

fn roots(tls: &Tls) -> Result<RootCertStore, Problem> {
    let mut roots = RootCertStore::empty();
    let Some(file) = &tls.ca_file else {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        return Ok(roots);
    };
    let wrong = |why: String| Problem::spec("target.tls.ca_file", format!("{file}: {why}"));
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))? {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() { Err(wrong("holds no certificate".into())) } else { Ok(roots) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsError {
    /// The handshake or a record is invalid.
    Broken,
    /// The socket failed with this errno.
    Socket(sys::Errno),
}

/// Writes the first error of the process to stderr: outcomes count errors, and name no reason.
#[cold]
fn told(error: rustls::Error) -> TlsError {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| eprintln!("TLS: {error}"));
    TlsError::Broken
}

pub struct TlsConnection {
    inner: ClientConnection,
    /// Approximate number of bytes that wait for room in the socket.
    waiting_bytes: usize,
}

impl TlsConnection {
    pub fn handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    /// True if records wait for room in the socket.
    pub fn wants_write(&self) -> bool {
        self.inner.wants_write()
    }

    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Decrypts bytes from the socket; appends the plain bytes to `plain`. True once the server has said that nothing
    /// follows (close_notify), which it may do long before it closes the socket.
    pub fn receive(&mut self, mut records: &[u8], plain: &mut Vec<u8>) -> Result<bool, TlsError> {
        let mut ended = false;
        while !records.is_empty() {
            let taken = self.inner.read_tls(&mut records).map_err(|_| TlsError::Broken)?;
            let state = self.inner.process_new_packets().map_err(told)?;
            ended = state.peer_has_closed();
            let length = state.plaintext_bytes_to_read();
            if length > 0 {
                let start = plain.len();
                plain.resize(start + length, 0);
                self.inner.reader().read_exact(&mut plain[start..]).map_err(|_| TlsError::Broken)?;
            }
            if taken == 0 {
                break;
            }
        }
        Ok(ended)
    }

    /// Encrypts plain bytes, to be sent by `flush`.
    pub fn send(&mut self, plain: &[u8]) {
        self.inner.writer().write_all(plain).expect("the buffer has no limit");
        self.waiting_bytes += plain.len() + RECORD_BYTES;
    }

    /// Writes records until none is left or the socket is full. Returns the number of bytes written.
    pub fn flush(&mut self, fd: i32) -> Result<usize, TlsError> {
        let mut total = 0;
        while self.inner.wants_write() {
            match self.inner.write_tls(&mut Socket { fd }) {
                Ok(count) => total += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(TlsError::Socket(error.raw_os_error().unwrap_or(0))),
            }
        }
        self.waiting_bytes = if self.inner.wants_write() { self.waiting_bytes.saturating_sub(total) } else { 0 };
        Ok(total)
    }
}

struct Socket {
    fd: i32,
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        sys::write(self.fd, bytes).map_err(io::Error::from_raw_os_error)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Accepts any certificate. Signatures are still checked, so the handshake itself must be sound.
#[derive(Debug)]
struct AcceptAny {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
