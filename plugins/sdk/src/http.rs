//! Asking servers by HTTP: `wasi:http`. A call reaches the servers that its grants name; a pure one reaches none.
//!
//! ```no_run
//! use deed_sdk::http::{Method, Request};
//!
//! # fn look() -> deed_sdk::Result<()> {
//! let response = Request::new(Method::Get, "https://api.example.org/v1/items")?
//!     .header("accept", "application/json")
//!     .credential("example")
//!     .send()?;
//! let body = response.read(64 * 1024);
//! # Ok(())
//! # }
//! ```
//!
//! # What the host adds
//!
//! - To every request but GET and HEAD the header `Idempotency-Key`, with [`Call::key`](crate::Call::key): the same for
//!   every attempt of the call. A server that honours it takes two *different* requests of one call for one, so a tool
//!   sends such a server one request that changes something in each call.
//! - The named [credential](Request::credential). The secret never enters the tool; where an answer holds it, there are
//!   asterisks in its place.
//!
//! # What came of it
//!
//! [`Error::InDoubt`] means that a request left which may have changed something, and no answer came; by `?` it becomes an
//! error whose effect is unknown, and the host decides what to do. After every other error nothing has changed. Redirects
//! are answers like others: a tool follows one by another request, which the host checks again.

use url::Url;
use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingBody, IncomingResponse, Method as WasiMethod, OutgoingBody, OutgoingRequest,
    Scheme,
};
use wasip2::io::streams::StreamError;

/// The most that one write to a body's stream takes.
const WRITE_BYTES: usize = 4096;

/// What is read from a body's stream at a time.
const READ_BYTES: u64 = 64 * 1024;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Look at something.
    Get,
    /// Look at the headers of something.
    Head,
    /// Whatever the server makes of it.
    Post,
    /// Put something in a place.
    Put,
    /// Change something in part.
    Patch,
    /// Remove something.
    Delete,
}

impl Method {
    /// As it stands in a request.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Whether it asks for nothing to be changed.
    pub fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }
}

/// Why no answer came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// It is no request: the address, or a header.
    Invalid(String),
    /// The host refused it. The host says why to whoever reads the call's error.
    Denied(String),
    /// Nothing has changed: it never left, or it asked for nothing to be changed.
    Failed(String),
    /// It left, and may have changed something.
    InDoubt(String),
}

/// A request in the making.
#[derive(Clone, Debug)]
pub struct Request {
    method: Method,
    url: Url,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Request {
    /// One without further headers and without a body. Fails as invalid unless `url` is one of `http` or `https`, without
    /// user and password.
    pub fn new(method: Method, url: &str) -> Result<Self, Error> {
        let wrong = |why: &str| Error::Invalid(format!("`{url}` {why}"));
        let url = Url::parse(url).map_err(|error| wrong(&format!("is no URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("is neither `http:` nor `https:`"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("holds a user or a password; name a credential instead"));
        }
        Ok(Self { method, url, headers: Vec::new(), body: Vec::new() })
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Names a credential of the operator's: the host puts it in, if the server is one that the credential is for. Else it
    /// refuses the request.
    #[must_use]
    pub fn credential(self, name: impl Into<String>) -> Self {
        self.header("deed-credential", name.into())
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it, and waits for the head of the answer. Whatever its status, an answer is no error.
    pub fn send(&self) -> Result<Response, Error> {
        let request = OutgoingRequest::new(self.fields()?);
        let wrong = |()| Error::Invalid(format!("`{}` is no address of a request", self.url));
        request.set_method(&self.wasi_method()).map_err(wrong)?;
        let scheme = if self.url.scheme() == "https" { Scheme::Https } else { Scheme::Http };
        request.set_scheme(Some(&scheme)).map_err(wrong)?;
        request.set_authority(Some(self.url.authority())).map_err(wrong)?;
        let path = match self.url.query() {
            Some(query) => format!("{}?{query}", self.url.path()),
            None => self.url.path().to_owned(),
        };
        request.set_path_with_query(Some(&path)).map_err(wrong)?;

        let body = if self.body.is_empty() { None } else { request.body().ok() };
        let answer = outgoing_handler::handle(request, None).map_err(|code| never_left(&code))?;
        if let Some(body) = body {
            // If this fails, the answer says why.
            self.write(body);
        }
        answer.subscribe().block();
        match answer.get() {
            Some(Ok(Ok(response))) => Ok(Response::new(response)),
            Some(Ok(Err(code))) => Err(self.unanswered(&code)),
            // It was waited for, and is asked for once.
            Some(Err(())) | None => Err(self.in_doubt("the host has no answer".to_owned())),
        }
    }

    fn wasi_method(&self) -> WasiMethod {
        match self.method {
            Method::Get => WasiMethod::Get,
            Method::Head => WasiMethod::Head,
            Method::Post => WasiMethod::Post,
            Method::Put => WasiMethod::Put,
            Method::Patch => WasiMethod::Patch,
            Method::Delete => WasiMethod::Delete,
        }
    }

    fn fields(&self) -> Result<Fields, Error> {
        let fields = Fields::new();
        for (name, value) in &self.headers {
            fields.append(name, value).map_err(|error| {
                use wasip2::http::types::HeaderError as Header;
                Error::Invalid(match error {
                    Header::Forbidden => format!("the header `{name}` is set by the host"),
                    _ => format!("the header `{name}` has a name or a value that no header may have"),
                })
            })?;
        }
        if !self.method.is_safe() || !self.body.is_empty() {
            let length = self.body.len().to_string().into_bytes();
            fields
                .set("content-length", &[length])
                .map_err(|_| Error::Invalid("the header `content-length` cannot be set".to_owned()))?;
        }
        Ok(fields)
    }

    fn write(&self, body: OutgoingBody) {
        let Ok(stream) = body.write() else { return };
        let written = self.body.chunks(WRITE_BYTES).all(|part| stream.blocking_write_and_flush(part).is_ok());
        drop(stream);
        if written {
            let _ = OutgoingBody::finish(body, None);
        }
    }

    fn unanswered(&self, code: &ErrorCode) -> Error {
        if has_left(code) { self.in_doubt(describe(code)) } else { never_left(code) }
    }

    fn in_doubt(&self, what: String) -> Error {
        if self.method.is_safe() { Error::Failed(what) } else { Error::InDoubt(what) }
    }
}

fn never_left(code: &ErrorCode) -> Error {
    match code {
        ErrorCode::HttpRequestDenied => Error::Denied(describe(code)),
        ErrorCode::HttpRequestMethodInvalid
        | ErrorCode::HttpRequestUriInvalid
        | ErrorCode::HttpRequestUriTooLong
        | ErrorCode::HttpRequestHeaderSectionSize(_)
        | ErrorCode::HttpRequestHeaderSize(_) => Error::Invalid(describe(code)),
        _ => Error::Failed(describe(code)),
    }
}

/// Whether the request may have left. Only what certainly comes before counts as not: a code that nobody classified is in
/// doubt.
fn has_left(code: &ErrorCode) -> bool {
    !matches!(
        code,
        ErrorCode::DnsTimeout
            | ErrorCode::DnsError(_)
            | ErrorCode::DestinationNotFound
            | ErrorCode::DestinationUnavailable
            | ErrorCode::DestinationIpProhibited
            | ErrorCode::DestinationIpUnroutable
            | ErrorCode::ConnectionRefused
            | ErrorCode::ConnectionTimeout
            | ErrorCode::ConnectionLimitReached
            | ErrorCode::TlsProtocolError
            | ErrorCode::TlsCertificateError
            | ErrorCode::TlsAlertReceived(_)
            | ErrorCode::HttpRequestDenied
            | ErrorCode::HttpRequestLengthRequired
            | ErrorCode::HttpRequestMethodInvalid
            | ErrorCode::HttpRequestUriInvalid
            | ErrorCode::HttpRequestUriTooLong
            | ErrorCode::HttpRequestHeaderSectionSize(_)
            | ErrorCode::HttpRequestHeaderSize(_)
            | ErrorCode::ConfigurationError
    )
}

fn describe(code: &ErrorCode) -> String {
    let text = match code {
        ErrorCode::DnsTimeout => "its name server did not answer in time",
        ErrorCode::DnsError(error) => {
            let why = error.rcode.as_deref().unwrap_or("no reason given");
            return format!("its name has no address: {why}");
        }
        ErrorCode::DestinationNotFound => "its name has no address",
        ErrorCode::DestinationUnavailable => "it took no request",
        ErrorCode::DestinationIpUnroutable => "there is no way to it",
        ErrorCode::ConnectionRefused => "it refused the connection",
        ErrorCode::ConnectionTimeout => "it did not take the connection in time",
        ErrorCode::ConnectionTerminated => "the connection broke before the answer",
        ErrorCode::ConnectionReadTimeout | ErrorCode::HttpResponseTimeout => "it did not answer in time",
        ErrorCode::HttpResponseIncomplete => "the connection was closed before the answer was complete",
        ErrorCode::HttpProtocolError => "what it answered is not HTTP",
        ErrorCode::TlsProtocolError => "no encrypted connection could be agreed on with it",
        ErrorCode::TlsCertificateError => "its certificate is not one to trust",
        ErrorCode::HttpRequestDenied => "the host refused to send the request",
        other => return format!("{other:?}"),
    };
    text.to_owned()
}

/// The head of an answer, and its body still to be read.
#[derive(Debug)]
pub struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    unread: IncomingResponse,
}

/// What was read of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The beginning of it, or all.
    pub data: Vec<u8>,
    /// What comes after.
    pub rest: Rest,
}

/// What comes after that which was read of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing: it is complete.
    Nothing,
    /// So many more bytes, if the server said how many.
    Cut(Option<u64>),
    /// Nobody knows: the connection broke.
    Broken(String),
}

impl Response {
    fn new(response: IncomingResponse) -> Self {
        let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
        let headers = response.headers().entries().into_iter().map(|(name, value)| (name, text(value)));
        Self { status: response.status(), headers: headers.collect(), unread: response }
    }

    /// Such as 200.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// All headers, names in lower case, in the server's order. What is no text in a value is replaced.
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Reads at most `max_bytes` of the body.
    pub fn read(self, max_bytes: usize) -> Body {
        let broken = |data, why: &str| Body { data, rest: Rest::Broken(why.to_owned()) };
        let Ok(body) = self.unread.consume() else { return broken(Vec::new(), "it was read before") };
        let (mut data, broke) = read(&body, max_bytes);
        let announced = self.header("content-length").and_then(|length| length.parse::<u64>().ok());
        if let Some(why) = broke {
            data.truncate(max_bytes);
            return broken(data, &why);
        }
        if data.len() <= max_bytes {
            return Body { data, rest: Rest::Nothing };
        }
        data.truncate(max_bytes);
        Body { data, rest: Rest::Cut(announced.map(|announced| announced.saturating_sub(max_bytes as u64))) }
    }
}

/// Up to one byte more than `max_bytes`, and why there is not more, if it broke.
fn read(body: &IncomingBody, max_bytes: usize) -> (Vec<u8>, Option<String>) {
    let mut data = Vec::new();
    let Ok(stream) = body.stream() else { return (data, Some("it was read before".to_owned())) };
    while data.len() <= max_bytes {
        let wanted = (max_bytes - data.len()) as u64 + 1;
        match stream.blocking_read(wanted.min(READ_BYTES)) {
            Ok(part) => data.extend(part),
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => {
                let code = wasip2::http::types::http_error_code(&error);
                let why = code.map_or_else(|| error.to_debug_string(), |code| describe(&code));
                return (data, Some(why));
            }
        }
    }
    (data, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{EffectState, ErrorKind};

    #[test]
    fn an_address_that_is_none_is_refused_with_the_reason() {
        for (url, named) in [
            ("example.org", "no URL"),
            ("ftp://example.org", "neither `http:` nor `https:`"),
            ("https://me:pw@example.org", "name a credential"),
        ] {
            let Err(Error::Invalid(message)) = Request::new(Method::Get, url) else {
                panic!("{url} was taken")
            };
            assert!(message.contains(url) && message.contains(named), "{message}");
        }
    }

    #[test]
    fn what_came_before_the_request_changed_nothing_and_the_rest_is_in_doubt() {
        let request = Request::new(Method::Post, "https://example.org").unwrap();
        assert!(matches!(request.unanswered(&ErrorCode::ConnectionRefused), Error::Failed(_)));
        assert!(matches!(request.unanswered(&ErrorCode::TlsCertificateError), Error::Failed(_)));
        assert!(matches!(request.unanswered(&ErrorCode::HttpRequestDenied), Error::Denied(_)));
        for code in [
            ErrorCode::ConnectionTerminated,
            ErrorCode::ConnectionReadTimeout,
            ErrorCode::HttpResponseIncomplete,
            ErrorCode::HttpProtocolError,
            ErrorCode::HttpRequestBodySize(None),
            ErrorCode::InternalError(None),
        ] {
            assert!(matches!(request.unanswered(&code), Error::InDoubt(_)), "{code:?}");
        }
        let safe = Request::new(Method::Get, "https://example.org").unwrap();
        assert!(matches!(safe.unanswered(&ErrorCode::ConnectionTerminated), Error::Failed(_)));
    }

    #[test]
    fn only_doubt_leaves_the_effect_unknown() {
        let effect = |error| crate::Error::from(error).effect;
        assert_eq!(effect(Error::InDoubt(String::new())), EffectState::Unknown);
        assert_eq!(effect(Error::Failed(String::new())), EffectState::NotApplied);
        assert_eq!(crate::Error::from(Error::Denied(String::new())).kind, ErrorKind::Denied);
    }
}
