//! What a URL says.

use std::net::IpAddr;

use http::Uri;

use crate::error::Error;

/// `http://host:port` is plain text, `https://host:port` is TLS, `host:port` is the former.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// A name, or an IP address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let wrong =
            || Error::invalid("url", format!("must be http://host:port or https://host:port, not {url:?}"));
        let with_scheme = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = with_scheme.parse().map_err(|_| wrong())?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let host = uri.host().filter(|host| !host.is_empty() && uri.path() == "/").ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port: uri.port_u16().unwrap_or(if tls { 443 } else { 80 }), tls })
    }

    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    pub(crate) fn loopback(&self) -> bool {
        self.host == "localhost" || self.ip().is_some_and(|ip| ip.is_loopback())
    }

    /// As `:authority` and certificates know it.
    pub(crate) fn origin(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{scheme}://{host}:{}", self.port)
    }
}
