//! Speaks HTTP with an object store: one request at a time on a connection, with or without TLS.
//!
//! The client that `object_store` can bring (HTTP/2, proxies, certificates of its own) would make the program larger by more
//! than all the rest of a lake. Certificates are the system's; `SSL_CERT_FILE` names others. Nothing is sent again here:
//! `object_store` does that.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderValue};
use hyper::http::uri::{Authority, Scheme};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Idle connections that are kept for each server.
const MOST_IDLE: usize = 8;

/// Makes clients for stores.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let value = |key: ClientConfigKey| options.get_config_value(&key);
        let is_set = |key| value(key).is_some_and(|it| it == "true");
        let time = |key| humantime::parse_duration(&value(key)?).ok();
        let refused = |what: &str| {
            let source = what.to_owned().into();
            Err(object_store::Error::NotSupported { source })
        };
        if is_set(ClientConfigKey::AllowInvalidCertificates) {
            return refused("certificates are always checked; SSL_CERT_FILE names those to trust");
        }
        if value(ClientConfigKey::ProxyUrl).is_some() {
            return refused("there is no way through a proxy");
        }
        Ok(HttpClient::new(Client {
            allow_http: is_set(ClientConfigKey::AllowHttp),
            connect: time(ClientConfigKey::ConnectTimeout).unwrap_or(Duration::from_secs(5)),
            patience: time(ClientConfigKey::Timeout).unwrap_or(Duration::from_secs(30)),
            tls: OnceLock::new(),
            idle: Mutex::default(),
        }))
    }
}

type Sender = SendRequest<HttpRequestBody>;

/// A client with its connections.
#[derive(Debug)]
struct Client {
    allow_http: bool,
    /// Time to connect.
    connect: Duration,
    /// Time without a byte to or from the server after which a connection is given up.
    patience: Duration,
    /// The system's certificates, read when they are first needed.
    tls: OnceLock<Arc<ClientConfig>>,
    idle: Mutex<HashMap<(bool, Authority), Vec<Sender>>>,
}

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (mut parts, body) = request.into_parts();
        let refused = |what: &str| error(HttpErrorKind::Unknown, what.to_owned());
        let uri = std::mem::take(&mut parts.uri).into_parts();
        let authority = uri
            .authority
            .ok_or_else(|| refused("no server in the address"))?;
        let is_plain = uri.scheme.as_ref() == Some(&Scheme::HTTP);
        if is_plain && !self.allow_http {
            return Err(refused(
                "an address without TLS is used only with AWS_ALLOW_HTTP=true, or the like",
            ));
        }
        let path = uri
            .path_and_query
            .map_or_else(|| Uri::from_static("/"), Uri::from);
        parts.uri = path;
        if !parts.headers.contains_key(HOST) {
            let host = authority.as_str().rsplit('@').next().unwrap_or_default();
            let host =
                HeaderValue::from_str(host).map_err(|it| error(HttpErrorKind::Request, it))?;
            parts.headers.insert(HOST, host);
        }
        let to = (!is_plain, authority);
        let mut request = Request::from_parts(parts, body);
        loop {
            let (mut sender, is_used) = match self.take(&to) {
                Some(sender) => (sender, true),
                None => (self.open(&to).await?, false),
            };
            match sender.try_send_request(request).await {
                Ok(response) => {
                    self.keep(to, sender);
                    return Ok(response.map(|body| HttpResponseBody::new(Answer(body))));
                }
                Err(mut failed) => match failed.take_message() {
                    // The server had closed it: nothing was sent.
                    Some(unsent) if is_used => request = unsent,
                    _ => return Err(of_hyper(failed.into_error())),
                },
            }
        }
    }
}

impl Client {
    /// A connection that no request uses.
    fn take(&self, to: &(bool, Authority)) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let senders = idle.get_mut(to)?;
        senders.retain(|it| !it.is_closed());
        let ready = senders.iter().rposition(Sender::is_ready)?;
        Some(senders.swap_remove(ready))
    }

    /// Keeps a connection, whose answer may yet have to be read.
    fn keep(&self, to: (bool, Authority), sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let senders = idle.entry(to).or_default();
        if senders.len() < MOST_IDLE {
            senders.push(sender);
        }
    }

    async fn open(&self, (has_tls, authority): &(bool, Authority)) -> Result<Sender, HttpError> {
        let host = authority.host().trim_matches(['[', ']']);
        let port = authority
            .port_u16()
            .unwrap_or(if *has_tls { 443 } else { 80 });
        let connected = timeout(self.connect, async {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            if !has_tls {
                return self.start(stream).await;
            }
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let tls = TlsConnector::from(self.tls()?);
            self.start(tls.connect(name, stream).await?).await
        });
        let late = |_| {
            error(
                HttpErrorKind::Connect,
                "the server does not answer".to_owned(),
            )
        };
        let connected = connected.await.map_err(late)?;
        connected.map_err(|it| error(HttpErrorKind::Connect, it))
    }

    /// Lets a connection work for as long as there are requests for it.
    async fn start<S>(&self, stream: S) -> io::Result<Sender>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let stream = Patient {
            stream,
            patience: self.patience,
            rest: Box::pin(sleep(self.patience)),
        };
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        // Its error is that of the request.
        tokio::spawn(connection);
        Ok(sender)
    }

    fn tls(&self) -> io::Result<Arc<ClientConfig>> {
        if let Some(tls) = self.tls.get() {
            return Ok(Arc::clone(tls));
        }
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err(io::Error::other(
                "there are no certificates: install ca-certificates, or set SSL_CERT_FILE",
            ));
        }
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::clone(self.tls.get_or_init(|| Arc::new(config))))
    }
}

/// An answer's body.
#[derive(Debug)]
struct Answer(Incoming);

impl Body for Answer {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let frame = ready!(Pin::new(&mut self.0).poll_frame(context));
        Poll::Ready(frame.map(|it| it.map_err(of_hyper)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// A stream that fails when nothing moves for some time, in either direction: also an idle one.
struct Patient<S> {
    stream: S,
    patience: Duration,
    rest: Pin<Box<Sleep>>,
}

impl<S> Patient<S> {
    fn heed<T>(
        &mut self,
        context: &mut Context<'_>,
        moved: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if moved.is_ready() {
            self.rest.as_mut().reset(Instant::now() + self.patience);
            return moved;
        }
        ready!(self.rest.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        self.heed(context, read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, from);
        self.heed(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn error(kind: HttpErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> HttpError {
    HttpError::new_boxed(kind, source.into())
}

/// An error on a connection: whether it makes sense to try again is in its causes.
fn of_hyper(source: hyper::Error) -> HttpError {
    let mut cause = source.source();
    let mut kind = match () {
        () if source.is_closed() || source.is_canceled() => HttpErrorKind::Request,
        () if source.is_incomplete_message() => HttpErrorKind::Request,
        () => HttpErrorKind::Interrupted,
    };
    while let Some(next) = cause {
        let io = next.downcast_ref::<io::Error>().map(io::Error::kind);
        if io == Some(io::ErrorKind::TimedOut) {
            kind = HttpErrorKind::Timeout;
        }
        cause = next.source();
    }
    if source.is_parse() {
        kind = HttpErrorKind::Decode;
    }
    error(kind, source)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    use super::*;

    /// A server that answers each of these connections by a text, and keeps them open.
    fn server(answers: Vec<&'static str>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut held = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 4096]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                if !answer.contains("close") {
                    held.push(stream);
                }
            }
            thread::park();
        });
        address
    }

    /// Asks so often; returns the last body.
    fn ask(options: &ClientOptions, at: &str, times: u32) -> Result<Bytes, HttpError> {
        let client = Connector.connect(options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let mut last = Bytes::new();
            for _ in 0..times {
                let mut request = HttpRequest::new(HttpRequestBody::empty());
                *request.uri_mut() = at.parse().unwrap();
                last = client.execute(request).await?.into_body().bytes().await?;
            }
            Ok(last)
        })
    }

    fn options() -> ClientOptions {
        let patience = Duration::from_millis(300);
        ClientOptions::new()
            .with_allow_http(true)
            .with_timeout(patience)
    }

    /// A server that never answers, or stops in the middle, is given up; one that closes is asked on another connection.
    #[test]
    fn servers() {
        let silent = server(vec!["", ""]);
        let begin = std::time::Instant::now();
        let error = ask(&options(), &format!("http://{silent}/x"), 1).unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Timeout, "{error}");
        assert!(begin.elapsed() < Duration::from_secs(10));
        let half = server(vec![
            "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
            "",
        ]);
        let error = ask(&options(), &format!("http://{half}/x"), 1).unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Timeout, "{error}");
        let cut = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nhalf";
        let error = ask(&options(), &format!("http://{}/x", server(vec![cut])), 1);
        assert!(error.is_err());
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nwhole";
        let closing = format!("http://{}/x", server(vec![whole, whole, whole]));
        assert_eq!(ask(&options(), &closing, 3).unwrap(), "whole");
    }

    /// Without TLS only where that is allowed; a server that is not there is no answer.
    #[test]
    fn refused() {
        let there = format!("http://{}/x", server(vec![""]));
        let error = ask(&ClientOptions::new(), &there, 1).unwrap_err();
        assert!(error.to_string().contains("without TLS"), "{error}");
        let error = ask(&options(), "http://127.0.0.1:1/x", 1).unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Connect, "{error}");
        let proxy = options().with_proxy_url("http://proxy");
        assert!(Connector.connect(&proxy).is_err());
        let unchecked = options().with_allow_invalid_certificates(true);
        assert!(Connector.connect(&unchecked).is_err());
    }
}
