//! Sending one request, so that it is known whether it left.
//!
//! The library has a function for this. It is not used because it joins connecting and sending: of a call that runs out of
//! time in it nobody could say on which side of the first byte it was. Here the gate is told in between.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use wasmtime_wasi_http::{Error, WasiBody, io::TokioIo};

use super::mask::{Mask, Masked};
use crate::capability::{Action, Gate};
use crate::engine::request::{CallObserver, LogLevel};
use crate::origin::Origin;

/// A request that the gate has let pass, ready to be sent.
pub(super) struct Outgoing {
    pub(super) request: Request<WasiBody>,
    pub(super) origin: Origin,
    pub(super) safe: bool,
    pub(super) limits: TimeLimits,
    pub(super) gate: Gate,
    pub(super) mask: Mask,
    pub(super) observer: Arc<dyn CallObserver>,
}

/// How long a request may take.
#[derive(Clone, Copy)]
pub(super) struct TimeLimits {
    /// To look up the name, to connect, and to agree on TLS.
    pub(super) connect: Duration,
    /// From there to the head of the answer.
    pub(super) first_byte: Duration,
    /// Between two pieces of the answer's body.
    pub(super) between_bytes: Duration,
}

/// What drives the connection while the answer's body is read.
pub(super) type Driver = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl Outgoing {
    /// Send it. An error of the first half says that nothing left; after the gate knows that it begins, an error leaves a
    /// request that is not safe in doubt, unless the request was never taken up.
    pub(super) async fn send(self) -> Result<(Response<WasiBody>, Driver), Error> {
        let Self { request, origin, safe, limits, gate, mask, observer } = self;
        let method = request.method().clone();
        let told = |error: Error| {
            observer.log(LogLevel::Warn, &format!("http: {method} to `{origin}`: {error}"));
            error
        };

        let stream = timeout(limits.connect, connect(&origin))
            .await
            .unwrap_or(Err(Error::ConnectionTimeout))
            .map_err(told)?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|_| told(Error::DestinationUnavailable))?;
        let connection = wasmtime_wasi::runtime::spawn(connection);

        let action = Action::Request { safe, method: method.as_str(), origin: &origin };
        let Some(pending) = gate.begin(action) else { return Err(Error::DestinationUnavailable) };
        let response = match timeout(limits.first_byte, sender.try_send_request(request)).await {
            Ok(Ok(response)) => response,
            // The connection was closed before the request was taken up.
            Ok(Err(error)) if error.message().is_some() => {
                pending.settle();
                return Err(told(Error::DestinationUnavailable));
            }
            Ok(Err(error)) => return Err(told(of_broken(error.error()))),
            Err(_) => return Err(told(Error::ConnectionReadTimeout)),
        };
        pending.settle();

        let (mut head, incoming) = response.into_parts();
        mask.headers(&mut head.headers);
        let body = Answer::new(incoming, limits.between_bytes, mask);
        let driver = async move {
            // What breaks is told to whoever reads the body.
            let _ = connection.await;
            Ok(())
        };
        Ok((Response::from_parts(head, WasiBody::new(body)), Box::new(driver)))
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection to exactly the origin that was granted. Whatever fails here, nothing has left.
async fn connect(origin: &Origin) -> Result<Box<dyn Stream>, Error> {
    let addresses = tokio::net::lookup_host((bare_host(origin), origin.port()))
        .await
        .map_err(|error| Error::DnsError { rcode: Some(error.to_string()), info_code: None })?;
    let addresses: Vec<_> = addresses.collect();
    if addresses.is_empty() {
        return Err(Error::DestinationNotFound);
    }
    let stream = TcpStream::connect(&addresses[..]).await.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => Error::ConnectionRefused,
        io::ErrorKind::TimedOut => Error::ConnectionTimeout,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Error::DestinationIpUnroutable,
        _ => Error::DestinationUnavailable,
    })?;
    // A request is written in few pieces, and each is waited for.
    let _ = stream.set_nodelay(true);
    if !origin.is_https() {
        return Ok(Box::new(stream));
    }
    let name =
        ServerName::try_from(bare_host(origin).to_owned()).map_err(|_| Error::HttpRequestUriInvalid)?;
    let stream = TlsConnector::from(tls()).connect(name, stream).await.map_err(|error| {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        match cause {
            Some(rustls::Error::InvalidCertificate(_)) => Error::TlsCertificateError,
            Some(rustls::Error::AlertReceived(alert)) => Error::TlsAlertReceived {
                alert_id: Some((*alert).into()),
                alert_message: Some(format!("{alert:?}")),
            },
            _ => Error::TlsProtocolError,
        }
    })?;
    Ok(Box::new(stream))
}

/// As a resolver and a certificate know it: an IPv6 address without brackets.
fn bare_host(origin: &Origin) -> &str {
    let host = origin.host();
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// How connections are encrypted: trusted is whom Mozilla trusts, wherever this runs.
fn tls() -> Arc<ClientConfig> {
    static TLS: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let made = || {
        let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        // Named, since a program around this library may have compiled in several.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has a cipher suite for every default version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    };
    Arc::clone(TLS.get_or_init(made))
}

/// What broke a connection on which something was sent.
fn of_broken(error: &hyper::Error) -> Error {
    if error.is_timeout() {
        Error::HttpResponseTimeout
    } else if error.is_incomplete_message() {
        Error::HttpResponseIncomplete
    } else if error.is_parse() || error.is_user() {
        Error::HttpProtocolError
    } else {
        Error::ConnectionTerminated
    }
}

/// The body of an answer: masked, and with a limit on every silence.
struct Answer {
    incoming: Incoming,
    masked: Masked,
    between_bytes: Duration,
    silence: Pin<Box<Sleep>>,
    /// Comes after what was held back.
    next: Option<End>,
}

/// How the data ends.
enum End {
    Closed,
    Then(Result<Frame<Bytes>, Error>),
}

impl Answer {
    fn new(incoming: Incoming, between_bytes: Duration, mask: Mask) -> Self {
        let silence = Box::pin(sleep(between_bytes));
        Self { incoming, masked: Masked::new(mask), between_bytes, silence, next: None }
    }

    fn end(&mut self, end: End) -> Option<Bytes> {
        self.next = Some(end);
        let rest = self.masked.finish();
        (!rest.is_empty()).then(|| rest.into())
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        loop {
            match this.next.take() {
                Some(End::Closed) => {
                    this.next = Some(End::Closed);
                    return Poll::Ready(None);
                }
                Some(End::Then(last)) => {
                    this.next = Some(End::Closed);
                    return Poll::Ready(Some(last));
                }
                None => {}
            }
            let rest = match Pin::new(&mut this.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        let deadline = Instant::now().checked_add(this.between_bytes);
                        if let Some(deadline) = deadline {
                            this.silence.as_mut().reset(deadline);
                        }
                        let data = this.masked.push(&data);
                        (!data.is_empty()).then(|| data.into())
                    }
                    Err(mut trailers) => {
                        if let Some(headers) = trailers.trailers_mut() {
                            this.masked.mask().headers(headers);
                        }
                        this.end(End::Then(Ok(trailers)))
                    }
                },
                Poll::Ready(Some(Err(error))) => this.end(End::Then(Err(of_broken(&error)))),
                Poll::Ready(None) => this.end(End::Closed),
                Poll::Pending => {
                    ready!(this.silence.as_mut().poll(cx));
                    this.end(End::Then(Err(Error::ConnectionReadTimeout)))
                }
            };
            if let Some(data) = rest {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }
}
