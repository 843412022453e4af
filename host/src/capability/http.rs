//! `wasi:http/outgoing-handler`: requests to servers that a grant names.
//!
//! The library implements the interface. Everything that leaves passes [`WasiHttpHooks::send_request`] here: the gate is
//! asked with where the request really goes, the named credential and the idempotency key are put in, and the rest is
//! [`send`]'s.

mod credential;
mod mask;
mod send;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use wasmtime::component::{Linker, ResourceTable};
use wasmtime_wasi_http::p2::add_only_http_to_linker_async;
use wasmtime_wasi_http::{
    Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView,
};

use self::credential::CREDENTIAL_HEADER;
pub use self::credential::{Credential, CredentialError};
use self::mask::Mask;
use self::send::{Driver, Outgoing, TimeLimits};
use super::{Action, Gate};
use crate::engine::limits::CONNECT_TIMEOUT;
use crate::engine::request::CallObserver;
use crate::origin::Origin;

/// By it a server that honours it recognises a request that it got before.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The requests of one call.
pub(crate) struct HttpCtx {
    wasi: WasiHttpCtx,
    hooks: Hooks,
}

struct Hooks {
    gate: Gate,
    idempotency_key: String,
    credentials: Arc<[Credential]>,
    mask: Mask,
    timeout: Duration,
    observer: Arc<dyn CallObserver>,
}

pub(crate) struct HttpCtxBuilder(Hooks);

impl HttpCtx {
    /// A context without credentials, for a call that may take no time at all.
    pub(crate) fn builder(gate: Gate, observer: Arc<dyn CallObserver>) -> HttpCtxBuilder {
        HttpCtxBuilder(Hooks {
            gate,
            idempotency_key: String::new(),
            credentials: Arc::new([]),
            mask: Mask::new(&[]),
            timeout: Duration::ZERO,
            observer,
        })
    }

    /// What the library works with.
    pub(crate) fn view<'a>(&'a mut self, table: &'a mut ResourceTable) -> WasiHttpCtxView<'a> {
        WasiHttpCtxView { hooks: &mut self.hooks, table, ctx: &mut self.wasi }
    }
}

impl HttpCtxBuilder {
    /// Sent with every request that changes something.
    pub(crate) fn idempotency_key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.0.idempotency_key);
        self
    }

    /// Those that a request may name.
    pub(crate) fn credentials(mut self, credentials: &Arc<[Credential]>) -> Self {
        self.0.mask = Mask::new(credentials);
        self.0.credentials = Arc::clone(credentials);
        self
    }

    /// What the call may take; no part of a request may take longer.
    pub(crate) fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout = timeout;
        self
    }

    pub(crate) fn build(self) -> HttpCtx {
        HttpCtx { wasi: WasiHttpCtx::new(), hooks: self.0 }
    }
}

/// Offer `wasi:http/types` and `wasi:http/outgoing-handler`. A store's data reaches them by the library's own view.
pub(crate) fn add_to_linker<T: WasiHttpView + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    add_only_http_to_linker_async(linker)
}

impl WasiHttpHooks for Hooks {
    // `host` is among the headers that a tool may not set, by default: it is made of the address.
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<(http::Response<WasiBody>, Driver), Error>> + Send> {
        let outgoing = self.prepare(request, options.unwrap_or_default());
        Box::new(async move { outgoing?.send().await })
    }
}

impl Hooks {
    /// Make of a tool's request what leaves, if it may. A refusal is recorded.
    fn prepare(&self, request: Request<WasiBody>, options: RequestOptions) -> Result<Outgoing, Error> {
        let (mut head, body) = request.into_parts();
        let origin = Origin::of(&head.uri.to_string()).ok_or(Error::HttpRequestUriInvalid)?;
        let safe = head.method == Method::GET || head.method == Method::HEAD;
        let method = head.method.clone();
        let action = Action::Request { safe, method: method.as_str(), origin: &origin };
        let denied = |_| Error::HttpRequestDenied;

        if head.uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            let why = "names a user or a password in an address; it can name a credential instead";
            return Err(denied(self.gate.refuse_for(action, why)));
        }
        self.gate.check(action).map_err(denied)?;

        // Exactly what was asked about, however the tool spelt it.
        let authority =
            HeaderValue::try_from(origin.authority()).map_err(|_| Error::HttpRequestUriInvalid)?;
        head.headers.insert(header::HOST, authority);
        if let Some(named) = named_credential(&mut head.headers) {
            let credential = named.and_then(|name| self.credential(&name, &origin));
            let (name, value) = credential.map_err(|why| denied(self.gate.refuse_for(action, &why)))?;
            head.headers.insert(name, value);
        }
        if !safe {
            // Whatever the tool says: the promise must not depend on it.
            let key = HeaderValue::try_from(&self.idempotency_key).map_err(|_| Error::ConfigurationError)?;
            head.headers.insert(IDEMPOTENCY_KEY, key);
        }
        head.uri = head.uri.path_and_query().cloned().map_or_else(Uri::default, Uri::from);

        let within = |asked: Option<Duration>, most: Duration| asked.unwrap_or(most).min(most);
        Ok(Outgoing {
            request: Request::from_parts(head, body),
            origin,
            safe,
            limits: TimeLimits {
                connect: within(options.connect_timeout, self.timeout.min(CONNECT_TIMEOUT)),
                first_byte: within(options.first_byte_timeout, self.timeout),
                between_bytes: within(options.between_bytes_timeout, self.timeout),
            },
            gate: self.gate.clone(),
            mask: self.mask.clone(),
            observer: Arc::clone(&self.observer),
        })
    }

    /// The header that carries the credential `name` to `origin`, or why there is none.
    fn credential(&self, name: &str, origin: &Origin) -> Result<(HeaderName, HeaderValue), String> {
        let Some(credential) = self.credentials.iter().find(|credential| credential.name == name) else {
            let known: Vec<String> =
                self.credentials.iter().map(|credential| format!("`{}`", credential.name)).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(format!(
                "names the credential `{name}`, which is not there; `[credentials.{name}]` in the user's `deed.toml` would make it; there is {known}"
            ));
        };
        if !credential.origins.iter().any(|covered| covered.covers(origin)) {
            let origins: Vec<String> =
                credential.origins.iter().map(|origin| format!("`{origin}`")).collect();
            return Err(format!("names the credential `{name}`, which goes to {} only", origins.join(", ")));
        }
        match &credential.secret {
            Ok(secret) => Ok((credential.header.clone(), secret.value.clone())),
            Err(why) => Err(format!("names the credential `{name}`, whose secret is not to be had: {why}")),
        }
    }
}

/// Take the name of a credential out of the headers, if there is one.
fn named_credential(headers: &mut http::HeaderMap) -> Option<Result<String, String>> {
    let named: Vec<HeaderValue> = headers.get_all(CREDENTIAL_HEADER).iter().cloned().collect();
    headers.remove(CREDENTIAL_HEADER);
    match &named[..] {
        [] => None,
        [name] => Some(name.to_str().map(ToOwned::to_owned).map_err(|_| {
            format!("names a credential by something that is no text, in the header `{CREDENTIAL_HEADER}`")
        })),
        several => Some(Err(format!("names {} credentials in one request; expected one", several.len()))),
    }
}
