//! What the model and programs read of an answer. It depends on the answer and on nothing else.

use std::collections::BTreeMap;

use deed_sdk::http::{Body, Method, Rest};
use deed_sdk::prelude::*;

use crate::follow::{Answer, Unanswered};

/// What a model can still take in.
const READ_BYTES: u32 = 64 * 1024;

/// With it a result fits into its record however much of the body has to be escaped there, twice.
const MAX_READ_BYTES: u32 = 512 * 1024;

/// The headers that say something about the answer itself, and are the same whenever it is given. Not `date`.
const HEADERS: [&str; 12] = [
    "allow",
    "content-disposition",
    "content-language",
    "content-range",
    "content-type",
    "etag",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "www-authenticate",
    "x-request-id",
];

/// The answer of a server.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Outcome {
    /// Where it comes from, after redirects.
    url: String,
    status: u16,
    /// Those that say something about the answer; several of one name are joined by commas.
    headers: BTreeMap<String, String>,
    /// The body, if it is text.
    body: Option<String>,
    /// Bytes of the body that were read.
    read_bytes: usize,
    /// Whether the body goes on.
    cut: bool,
    /// By how many bytes, if the server said it.
    cut_bytes: Option<u64>,
    /// Why the body is not complete, if the connection broke in the middle of it.
    broken: Option<String>,
    /// Why a redirect was not followed.
    not_followed: Option<String>,
}

/// The bytes of a body to read.
pub(crate) fn read_limit(max_bytes: Option<u32>) -> Result<usize> {
    let max_bytes = max_bytes.unwrap_or(READ_BYTES);
    if max_bytes > MAX_READ_BYTES {
        return Err(Error::invalid(format!("`max_bytes` is {max_bytes}; at most {MAX_READ_BYTES} are read")));
    }
    Ok(max_bytes as usize)
}

/// Why there is no answer to a call that asked for `url`.
pub(crate) fn failure(method: Method, url: &str, unanswered: Unanswered) -> Error {
    let led =
        if unanswered.url == url { String::new() } else { format!(", which led to `{}`", unanswered.url) };
    Error::from(unanswered.error).context(format!("failed to {} `{url}`{led}", method.as_str()))
}

impl Outcome {
    /// Read at most `max_bytes` of the answer's body.
    pub(crate) fn read(answer: Answer, max_bytes: usize) -> Self {
        let Answer { response, url, note } = answer;
        let mut headers = BTreeMap::<String, String>::new();
        for (name, value) in response.headers().iter().filter(|(name, _)| HEADERS.contains(&name.as_str())) {
            let joined = headers.entry(name.clone()).or_default();
            if !joined.is_empty() {
                joined.push_str(", ");
            }
            joined.push_str(value);
        }
        let status = response.status();
        Self::of(url, status, headers, response.read(max_bytes), note)
    }

    fn of(
        url: String,
        status: u16,
        headers: BTreeMap<String, String>,
        body: Body,
        not_followed: Option<String>,
    ) -> Self {
        let Body { data, rest } = body;
        let read_bytes = data.len();
        let media_type = headers.get("content-type").map(String::as_str);
        let text = to_text(data, media_type, rest != Rest::Nothing);
        let (cut, cut_bytes, broken) = match rest {
            Rest::Nothing => (false, None, None),
            Rest::Cut(bytes) => (true, bytes, None),
            Rest::Broken(why) => (true, None, Some(why)),
        };
        Self { url, status, headers, body: text, read_bytes, cut, cut_bytes, broken, not_followed }
    }

    pub(crate) fn into_output(self) -> Result<Output> {
        Output::text(self.to_text()).with_json(&self)
    }

    fn to_text(&self) -> String {
        let mut text = format!("status {}\n", self.status);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\n"));
        }
        if let Some(why) = &self.not_followed {
            text.push_str(&format!("[not followed: {why}]\n"));
        }
        match &self.body {
            Some(body) if body.is_empty() => {}
            Some(body) => {
                text.push('\n');
                text.push_str(body);
                if !body.ends_with('\n') {
                    text.push('\n');
                }
            }
            None => {
                let media_type = self.headers.get("content-type").map_or("no text", String::as_str);
                text.push_str(&format!("[{} bytes are not shown: {media_type}]\n", self.read_bytes));
            }
        }
        match (&self.broken, self.cut_bytes) {
            (Some(why), _) => text.push_str(&format!("[incomplete: {why}]\n")),
            (None, Some(bytes)) => {
                text.push_str(&format!("[cut: {bytes} more bytes; `max_bytes` reads more]\n"));
            }
            (None, None) if self.cut => text.push_str("[cut: there is more; `max_bytes` reads more]\n"),
            (None, None) => {}
        }
        text
    }
}

/// `data` as text, if that is what it is. One that goes on may end within a character.
fn to_text(mut data: Vec<u8>, media_type: Option<&str>, goes_on: bool) -> Option<String> {
    if data.contains(&0) {
        return None;
    }
    if goes_on
        && let Err(error) = std::str::from_utf8(&data)
        && error.error_len().is_none()
    {
        data.truncate(error.valid_up_to());
    }
    match String::from_utf8(data) {
        Ok(text) => Some(text),
        Err(error) if media_type.is_some_and(is_text) => {
            Some(String::from_utf8_lossy(error.as_bytes()).into_owned())
        }
        Err(_) => None,
    }
}

fn is_text(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.starts_with("text/")
        || ["json", "xml", "javascript", "x-www-form-urlencoded", "yaml"]
            .iter()
            .any(|kind| essence.ends_with(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(media_type: &str, data: &[u8], rest: Rest) -> Outcome {
        let headers = BTreeMap::from([("content-type".to_owned(), media_type.to_owned())]);
        Outcome::of("https://a.test/".to_owned(), 200, headers, Body { data: data.into(), rest }, None)
    }

    fn text(media_type: &str, data: &[u8], rest: Rest) -> String {
        outcome(media_type, data, rest).to_text()
    }

    #[test]
    fn status_and_headers_come_before_the_body() {
        assert_eq!(
            text("text/plain", b"hello", Rest::Nothing),
            "status 200\ncontent-type: text/plain\n\nhello\n"
        );
        assert_eq!(text("text/plain", b"", Rest::Nothing), "status 200\ncontent-type: text/plain\n");
    }

    #[test]
    fn what_is_missing_is_said() {
        let cut = text("text/plain", b"a", Rest::Cut(Some(7)));
        assert!(cut.ends_with("a\n[cut: 7 more bytes; `max_bytes` reads more]\n"), "{cut}");
        let cut = text("text/plain", b"a", Rest::Cut(None));
        assert!(cut.ends_with("[cut: there is more; `max_bytes` reads more]\n"), "{cut}");
        let broken = text("text/plain", b"a", Rest::Broken("it broke".into()));
        assert!(broken.ends_with("a\n[incomplete: it broke]\n"), "{broken}");
    }

    #[test]
    fn bytes_are_named_and_not_shown() {
        assert!(
            text("image/png", b"\x89PNG\0", Rest::Nothing).ends_with("[5 bytes are not shown: image/png]\n")
        );
        assert_eq!(outcome("image/png", b"\x89PNG", Rest::Nothing).body, None);
        assert_eq!(
            outcome("image/svg+xml", b"<svg\xff/>", Rest::Nothing).body.as_deref(),
            Some("<svg\u{fffd}/>")
        );
        assert_eq!(outcome("application/x", "ü".as_bytes(), Rest::Nothing).body.as_deref(), Some("ü"));
    }

    #[test]
    fn a_cut_splits_no_character() {
        let half = &"aü".as_bytes()[..2];
        assert_eq!(outcome("application/x", half, Rest::Cut(None)).body.as_deref(), Some("a"));
    }

    #[test]
    fn more_than_a_result_can_hold_is_not_read() {
        assert_eq!(read_limit(None).unwrap(), 64 * 1024);
        assert!(read_limit(Some(1 << 20)).unwrap_err().message.contains("524288"));
    }
}
