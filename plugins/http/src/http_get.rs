//! `http_get`.

use std::collections::BTreeMap;

use deed_sdk::http::Method;
use deed_sdk::prelude::*;

use crate::follow::Ask;
use crate::report::{Outcome, failure, read_limit};

/// Ask a server for something by HTTP. Only servers that the operator has granted can be reached. Redirects are followed.
/// A status that is no success is reported, not an error.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct HttpGet {
    /// The address, `https://…` or `http://…`.
    url: String,
    /// `GET`, or `HEAD` for the headers alone; `GET` if left out.
    #[serde(default)]
    method: SafeMethod,
    /// Headers to send.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The name of a credential that the operator has set up for this server. The host puts it in.
    credential: Option<String>,
    /// Bytes of the body to read; 65536 if left out.
    #[schemars(range(max = 524_288))]
    max_bytes: Option<u32>,
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
enum SafeMethod {
    #[default]
    Get,
    Head,
}

impl Tool for HttpGet {
    const NAME: &str = "http_get";
    const TITLE: Option<&str> = Some("HTTP get");
    const EFFECT: Effect = Effect::Idempotent;
    const OPEN_WORLD: bool = true;
    const TIMEOUT_MS: Option<u32> = Some(60_000);
    const RESULT: Option<ResultType> = Some(ResultType::of::<Outcome>());

    fn run(self, _: &Call) -> Result<Output> {
        let method = match self.method {
            SafeMethod::Get => Method::Get,
            SafeMethod::Head => Method::Head,
        };
        let max_bytes = read_limit(self.max_bytes)?;
        let ask = Ask {
            method,
            url: &self.url,
            headers: self.headers,
            credential: self.credential.as_deref(),
            body: Vec::new(),
        };
        let answer = ask.send().map_err(|unanswered| failure(method, &self.url, unanswered))?;
        Outcome::read(answer, max_bytes).into_output()
    }
}
