//! `http_send`.

use std::collections::BTreeMap;

use deed_sdk::http::Method;
use deed_sdk::prelude::*;
use serde_json::Value;

use crate::follow::Ask;
use crate::report::{Outcome, failure, read_limit};

/// Send something to a server by HTTP. Only servers that the operator has granted can be reached. Redirects are followed
/// on the same server only. A status that is no success is reported, not an error.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct HttpSend {
    /// What to do.
    method: UnsafeMethod,
    /// The address, `https://…` or `http://…`.
    url: String,
    /// Headers to send. The host adds `Idempotency-Key`.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The body, as text.
    body: Option<String>,
    /// The body, as JSON; in place of `body`.
    json: Option<Value>,
    /// The name of a credential that the operator has set up for this server. The host puts it in.
    credential: Option<String>,
    /// Bytes of the answer's body to read; 65536 if left out.
    #[schemars(range(max = 524_288))]
    max_bytes: Option<u32>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
enum UnsafeMethod {
    Post,
    Put,
    Patch,
    Delete,
}

impl From<UnsafeMethod> for Method {
    fn from(method: UnsafeMethod) -> Self {
        match method {
            UnsafeMethod::Post => Self::Post,
            UnsafeMethod::Put => Self::Put,
            UnsafeMethod::Patch => Self::Patch,
            UnsafeMethod::Delete => Self::Delete,
        }
    }
}

impl HttpSend {
    /// The body with the type it has unless a header says otherwise.
    fn body(&self) -> Result<Option<(Vec<u8>, &'static str)>> {
        match (&self.body, &self.json) {
            (Some(_), Some(_)) => {
                Err(Error::invalid("failed to send: `body` and `json` are both given; expected one of them"))
            }
            (Some(text), None) => Ok(Some((text.clone().into_bytes(), "text/plain; charset=utf-8"))),
            (None, Some(json)) => Ok(Some((json.to_string().into_bytes(), "application/json"))),
            (None, None) => Ok(None),
        }
    }
}

impl Tool for HttpSend {
    const NAME: &str = "http_send";
    const TITLE: Option<&str> = Some("HTTP send");
    const EFFECT: Effect = Effect::NonIdempotent;
    const DESTRUCTIVE: bool = true;
    const OPEN_WORLD: bool = true;
    const TIMEOUT_MS: Option<u32> = Some(60_000);
    const RESULT: Option<ResultType> = Some(ResultType::of::<Outcome>());

    fn run(self, _: &Call) -> Result<Output> {
        let method = Method::from(self.method);
        let max_bytes = read_limit(self.max_bytes)?;
        let mut headers = self.headers.clone();
        let mut body = Vec::new();
        if let Some((bytes, media_type)) = self.body()? {
            body = bytes;
            if !headers.keys().any(|name| name.eq_ignore_ascii_case("content-type")) {
                headers.insert("content-type".to_owned(), media_type.to_owned());
            }
        }
        let ask = Ask { method, url: &self.url, headers, credential: self.credential.as_deref(), body };
        let answer = ask.send().map_err(|unanswered| failure(method, &self.url, unanswered))?;
        Outcome::read(answer, max_bytes).into_output()
    }
}

/// True of a server that honours the key which the host sends with it. Which ones do is the operator's to say: of others
/// the host disregards this.
impl Refine for HttpSend {
    fn refine(&self) -> Option<Plan> {
        let summary = format!("{} {}", Method::from(self.method).as_str(), self.url);
        Some(Plan::new(Effect::Idempotent, summary).on(&self.url))
    }
}
