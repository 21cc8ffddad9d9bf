//! Making a connection: the stream, by TCP, TLS or a Unix socket, and what is said on it first.

use std::io;

use futures_util::future::select_ok;
use redis::{Client, Cmd, ConnectionAddr, ErrorKind, RedisConnectionInfo, RedisError, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, lookup_host};

use super::reply;

/// Bytes in both directions.
pub(in super::super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection that nobody shares yet.
pub(in super::super) type Line = Box<dyn Stream>;

/// Connects to a server and makes a real round trip: it tells whether this is Redis, and whether we may talk to it.
/// `roots`: the certificates that a server's must come from, in PEM; without them, those of the system.
pub(in super::super) async fn dial(client: &Client, roots: Option<&[u8]>) -> RedisResult<Line> {
    let info = client.get_connection_info();
    let mut line: Line = match info.addr() {
        ConnectionAddr::Tcp(host, port) => Box::new(tcp(host, *port).await?),
        ConnectionAddr::TcpTls { host, port, .. } => tls(host, tcp(host, *port).await?, roots).await?,
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Box::new(tokio::net::UnixStream::connect(path).await?),
        _ => return Err(unusable("there are no connections to such addresses here".to_owned())),
    };
    greet(&mut line, info.redis_settings()).await?;
    Ok(line)
}

/// The first of the host's addresses that answers.
async fn tcp(host: &str, port: u16) -> RedisResult<TcpStream> {
    let places: Vec<_> = lookup_host((host, port)).await?.collect();
    if places.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address").into());
    }
    let (stream, _) = select_ok(places.into_iter().map(|place| Box::pin(TcpStream::connect(place)))).await?;
    // What goes out was gathered already.
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(feature = "redis-tls")]
async fn tls(host: &str, stream: TcpStream, roots: Option<&[u8]>) -> RedisResult<Line> {
    use std::sync::Arc;

    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};

    let unusable = |error: &dyn std::error::Error| unusable(error.to_string());
    let mut trusted = RootCertStore::empty();
    match roots {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| unusable(&error))?;
                trusted.add(certificate).map_err(|error| unusable(&error))?;
            }
        }
        // As many as can be read: which of them is needed is not known.
        None => _ = trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    }
    let config = ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth();
    let host = ServerName::try_from(host.to_owned()).map_err(|error| unusable(&error))?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    Ok(Box::new(connector.connect(host, stream).await?))
}

#[cfg(not(feature = "redis-tls"))]
async fn tls(_: &str, _: TcpStream, _: Option<&[u8]>) -> RedisResult<Line> {
    Err(unusable("TLS needs the feature `redis-tls`".to_owned()))
}

fn unusable(why: String) -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, "no connection can be made", why))
}

/// Says who we are and which database is meant.
async fn greet(line: &mut Line, settings: &RedisConnectionInfo) -> RedisResult<()> {
    let mut greeting = Vec::new();
    let mut say = |words: &[&str]| {
        let mut command = Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        greeting.push(command);
        greeting.len() - 1
    };
    let auth = settings.password().map(|password| match settings.username() {
        Some(user) => say(&["AUTH", user, password]),
        None => say(&["AUTH", password]),
    });
    let select = (settings.db() != 0).then(|| say(&["SELECT", &settings.db().to_string()]));
    if let (Some(name), Some(version)) = (settings.lib_name(), settings.lib_ver()) {
        // Servers before 7.2 do not know it.
        say(&["CLIENT", "SETINFO", "LIB-NAME", name]);
        say(&["CLIENT", "SETINFO", "LIB-VER", version]);
    }
    let ping = say(&["PING"]);
    let answers = ask(line, &greeting).await?;
    let refusal = |at: usize| match answers.get(at) {
        Some(Value::ServerError(error)) => Some(error.clone()),
        _ => None,
    };
    if auth.and_then(refusal).is_some() {
        // The server's own words may have the name in them.
        return Err((ErrorKind::AuthenticationFailed, "Password authentication failed").into());
    }
    match select.and_then(refusal).or_else(|| refusal(ping)) {
        Some(refused) => Err(refused.into()),
        None => Ok(()),
    }
}

/// Sends commands and waits for their answers, while nobody else uses the connection.
pub(in super::super) async fn ask(line: &mut Line, commands: &[Cmd]) -> RedisResult<Vec<Value>> {
    let mut packed = Vec::new();
    commands.iter().for_each(|command| command.write_packed_command(&mut packed));
    line.write_all(&packed).await?;
    line.flush().await?;
    let (mut come, mut answers) = (Vec::new(), Vec::with_capacity(commands.len()));
    while answers.len() < commands.len() {
        match reply::read(&come)? {
            Some((answer, length)) => {
                come.drain(..length);
                answers.push(answer);
            }
            None => {
                if line.read_buf(&mut come).await? == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
            }
        }
    }
    Ok(answers)
}
