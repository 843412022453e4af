//! `http_get` and `http_send`: ask a server, and send to one.

mod follow;
mod http_get;
mod http_send;
mod report;

deed_sdk::export!(http_get::HttpGet, http_send::HttpSend);
