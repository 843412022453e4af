//! A real HTTP/1.1 server on a free loopback port, for tests of what requests do to the world.
//!
//! Fault model: a client may die at any instant; the receiver goes on. It answers one request on a connection, and it
//! takes a request for one that came only when it has read all of it. What it has counted it never takes back, so an
//! effect that came twice is seen as two.
//!
//! It holds at most `MAX_CONNECTIONS` connections and `MAX_REQUESTS` requests; beyond that it is the test that is
//! wrong, and it says so.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use crate::process::PATIENCE;

/// Connections at a time. A test of many processes has fewer, and a machine has room for them.
const MAX_CONNECTIONS: usize = 256;

/// Requests in all: several times what 500 kills with their attempts make.
const MAX_REQUESTS: usize = 10_000;

/// Bytes of a request's head, and of its body.
const MAX_BYTES: u64 = 16 << 20;

/// A request that has come whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// `GET`, `POST`, …
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names in lower case, in the order in which they came.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Received {
    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == &name.to_ascii_lowercase());
        found.map(|(_, value)| value.as_str())
    }

    /// The body, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn is_safe(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD")
    }
}

/// What is answered to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Bytes of the body after which the connection is closed, though more were announced.
    breaks_after: Option<usize>,
}

impl Answer {
    /// A status, and a body that is text.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        let headers = vec![("content-type".to_owned(), "text/plain; charset=utf-8".to_owned())];
        Self { status, headers, body: body.into().into_bytes(), breaks_after: None }
    }

    /// A redirect.
    pub fn redirect(status: u16, location: impl Into<String>) -> Self {
        Self::text(status, "").header("location", location)
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Takes other bytes for its body, of another type.
    #[must_use]
    pub fn bytes(mut self, media_type: &str, body: Vec<u8>) -> Self {
        self.headers.retain(|(name, _)| name != "content-type");
        self.body = body;
        self.header("content-type", media_type)
    }

    /// Breaks off after so many bytes of the body.
    #[must_use]
    pub fn broken_after(mut self, bytes: usize) -> Self {
        self.breaks_after = Some(bytes);
        self
    }
}

/// What becomes of a request that has come.
#[derive(Clone, Debug)]
pub enum Reaction {
    /// It is answered.
    Answer(Answer),
    /// It is answered when the gate opens.
    AnswerBehind(Gate, Answer),
    /// The connection is closed without an answer.
    Break,
    /// It is never answered; the connection stays as long as the receiver does.
    Silence,
}

/// Holds answers back until a test opens it. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// A closed one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Let everything through, from now on.
    pub fn open(&self) {
        *lock(&self.0.0) = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let open = lock(&self.0.0);
        drop(self.0.1.wait_timeout_while(open, PATIENCE, |open| !*open));
    }
}

/// Decides what becomes of a request; the number counts the requests that came before it.
type Script = dyn Fn(&Received, usize) -> Reaction + Send + Sync;

/// A server in this process. Dropped, it closes its port and all its connections. Shared by reference between threads.
pub struct Receiver {
    shared: Arc<Shared>,
    address: SocketAddr,
    listening: Option<JoinHandle<()>>,
}

struct Shared {
    /// Whether a key stands for the answer that was given to it.
    honours_key: bool,
    script: Box<Script>,
    state: Mutex<State>,
    came: Condvar,
    /// Opened when the receiver stops.
    stopping: Gate,
}

#[derive(Default)]
struct State {
    stopped: bool,
    received: Vec<Received>,
    /// Requests that changed something, in order.
    effects: Vec<Received>,
    /// What was decided for each key.
    answers: HashMap<String, Reaction>,
    connections: HashMap<u64, TcpStream>,
    fault: Option<String>,
}

impl Receiver {
    /// One that appends: each request that is no GET and no HEAD is an effect, whatever key it has. Answers 201 to those,
    /// and 200 to the others.
    pub fn appending() -> Self {
        Self::scripted(false, |request, _| created(request))
    }

    /// One that honours `Idempotency-Key`: a request with a key it has seen has no effect, and gets the answer that the
    /// first one got.
    pub fn honouring() -> Self {
        Self::scripted(true, |request, _| created(request))
    }

    /// One that does with each request what `script` says. The effect of a request is there before its answer. With
    /// `honours_key`, what was decided for a key is done again, but for a break or a silence: then the answer is given
    /// that the script has for the next request.
    pub fn scripted(
        honours_key: bool,
        script: impl Fn(&Received, usize) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the system has a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            honours_key,
            script: Box::new(script),
            state: Mutex::default(),
            came: Condvar::new(),
            stopping: Gate::new(),
        });
        let listening = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.listen(&listener)
        });
        Self { shared, address, listening: Some(listening) }
    }

    /// Where it is, as a grant names it: `http://127.0.0.1:PORT`.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// An address at it.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin())
    }

    /// Every request that has come whole, in order.
    #[track_caller]
    pub fn received(&self) -> Vec<Received> {
        self.sound().received.clone()
    }

    /// Every request that changed something, in order.
    #[track_caller]
    pub fn effects(&self) -> Vec<Received> {
        self.sound().effects.clone()
    }

    /// Wait until so many requests have come.
    #[track_caller]
    pub fn wait_for(&self, count: usize) {
        let state = self.sound();
        let waited =
            self.shared.came.wait_timeout_while(state, PATIENCE, |state| state.received.len() < count);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let came = state.received.len();
        drop(state);
        assert!(came >= count, "{came} requests came, and {count} were waited for");
    }

    /// Wait until every connection made so far is over: what a killed process had handed to the kernel has come by then.
    #[track_caller]
    pub fn quiet(&self) {
        // The listener takes connections in order, so those before this one have been taken when this one is served.
        let served = TcpStream::connect(self.address).and_then(|mut last| {
            last.shutdown(Shutdown::Write)?;
            last.set_read_timeout(Some(PATIENCE))?;
            last.read_to_end(&mut Vec::new())
        });
        assert!(served.is_ok(), "the receiver does not listen: {served:?}");
        let state = self.sound();
        let waited =
            self.shared.came.wait_timeout_while(state, PATIENCE, |state| !state.connections.is_empty());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let open = state.connections.len();
        drop(state);
        assert!(open == 0, "{open} connections are still open");
    }

    #[track_caller]
    fn sound(&self) -> MutexGuard<'_, State> {
        let state = lock(&self.shared.state);
        let fault = state.fault.clone();
        assert!(fault.is_none(), "the receiver got what it cannot take: {}", fault.unwrap_or_default());
        state
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.stopped = true;
        for connection in state.connections.values() {
            connection.shutdown(Shutdown::Both).ok();
        }
        drop(state);
        self.shared.stopping.open();
        // Wakes the listener, which then sees that it is over.
        TcpStream::connect(self.address).ok();
        if let Some(listening) = self.listening.take() {
            listening.join().ok();
        }
    }
}

fn created(request: &Received) -> Reaction {
    let answer = if request.is_safe() {
        Answer::text(200, format!("{} {}\n", request.method, request.path))
    } else {
        Answer::text(201, format!("made of {}\n", request.text()))
    };
    Reaction::Answer(answer)
}

impl Shared {
    fn listen(self: &Arc<Self>, listener: &TcpListener) {
        for (number, connection) in (0_u64..).zip(listener.incoming()) {
            let mut state = lock(&self.state);
            if state.stopped {
                break;
            }
            // A client that is gone already is no fault.
            let Ok(connection) = connection else { continue };
            let Ok(handle) = connection.try_clone() else { continue };
            if state.connections.len() >= MAX_CONNECTIONS {
                state.fault = Some(format!("more than {MAX_CONNECTIONS} connections at once"));
                continue;
            }
            state.connections.insert(number, handle);
            drop(state);
            let shared = Arc::clone(self);
            // Ends when its connection does: nobody waits for it.
            thread::spawn(move || {
                shared.serve(&connection);
                connection.shutdown(Shutdown::Both).ok();
                lock(&shared.state).connections.remove(&number);
                shared.came.notify_all();
            });
        }
    }

    /// One request. A client that dies half way has sent none.
    fn serve(&self, connection: &TcpStream) {
        connection.set_read_timeout(Some(PATIENCE)).ok();
        let Ok(Some(request)) = read_request(connection) else { return };
        match self.react(&request) {
            Reaction::Answer(answer) => {
                write_answer(connection, &request, &answer).ok();
            }
            Reaction::AnswerBehind(gate, answer) => {
                gate.pass();
                write_answer(connection, &request, &answer).ok();
            }
            Reaction::Break => {}
            Reaction::Silence => self.stopping.pass(),
        }
    }

    /// Record the request and its effect, and decide what becomes of it: one at a time, so that two with one key are told
    /// apart.
    fn react(&self, request: &Received) -> Reaction {
        let mut state = lock(&self.state);
        let number = state.received.len();
        if number >= MAX_REQUESTS {
            state.fault = Some(format!("more than {MAX_REQUESTS} requests"));
            return Reaction::Break;
        }
        state.received.push(request.clone());
        let key = request.header("idempotency-key").filter(|_| self.honours_key).map(str::to_owned);
        let known = key.as_ref().and_then(|key| state.answers.get(key)).cloned();
        if !request.is_safe() && known.is_none() {
            state.effects.push(request.clone());
        }
        let reaction = match known {
            Some(reaction @ (Reaction::Answer(_) | Reaction::AnswerBehind(..))) => reaction,
            _ => (self.script)(request, number),
        };
        if let Some(key) = key.filter(|_| !request.is_safe()) {
            state.answers.insert(key, reaction.clone());
        }
        drop(state);
        self.came.notify_all();
        reaction
    }
}

/// A request as a client sends it; none when it closes first.
fn read_request(connection: &TcpStream) -> io::Result<Option<Received>> {
    let mut reader = BufReader::new(connection.take(MAX_BYTES));
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    let mut words = line.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Err(bad()) };
    let mut request =
        Received { method: method.to_owned(), path: path.to_owned(), headers: Vec::new(), body: Vec::new() };
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(bad());
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(bad)?;
        request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    // Clients of deed announce the length of what they send.
    let length = request.header("content-length").map_or(Ok(0), str::parse::<usize>).map_err(|_| bad())?;
    request.body.resize(length, 0);
    reader.read_exact(&mut request.body)?;
    Ok(Some(request))
}

fn write_answer(mut connection: &TcpStream, request: &Received, answer: &Answer) -> io::Result<()> {
    let (status, length) = (answer.status, answer.body.len());
    let mut head =
        format!("HTTP/1.1 {status} Answer\r\nconnection: close\r\ncontent-length: {length}\r\n").into_bytes();
    for (name, value) in &answer.headers {
        write!(head, "{name}: {value}\r\n")?;
    }
    head.extend_from_slice(b"\r\n");
    connection.write_all(&head)?;
    if request.method != "HEAD" {
        let sent = answer.breaks_after.unwrap_or(answer.body.len()).min(answer.body.len());
        connection.write_all(&answer.body[..sent])?;
    }
    connection.flush()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of a script while the list was locked leaves a list that is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
