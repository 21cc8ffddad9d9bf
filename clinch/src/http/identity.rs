//! Who sends a request: a chain of steps, of which the first that knows decides.
//!
//! A step may take more people for one (everybody behind one address), but never one of a kind for one of another: a
//! `userId` that somebody wrote into a form is not the verified user of the same id.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::{AUTHORIZATION, COOKIE};
use http::{Extensions, HeaderMap};

use super::address::{self, ClientAddress, TrustedProxies};
use crate::submit::Identity;

/// What a step of the chain may look at.
#[derive(Clone, Copy)]
pub struct Sender<'a> {
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    param: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Sender<'a> {
    /// The sender of a request with these headers and extensions, whose parameters `param` finds by name.
    pub fn new(
        headers: &'a HeaderMap,
        extensions: &'a Extensions,
        param: &'a dyn Fn(&str) -> Option<String>,
    ) -> Self {
        Self { headers, extensions, param }
    }

    /// The request's headers.
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The request's extensions: what the server and the layers before this one put there.
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// A parameter of the request, from its path, its query or its body. Only a step that says that it
    /// [needs them](Identify::needs_params) may count on those of the body.
    pub fn param(&self, name: &str) -> Option<String> {
        (self.param)(name)
    }

    /// The other end of the connection, which is the client or the last proxy: a [`PeerAddress`](super::PeerAddress) among
    /// the extensions, or else axum's `ConnectInfo<SocketAddr>`. An IPv4 address in IPv6 clothes is given as IPv4.
    pub fn peer(&self) -> Option<IpAddr> {
        address::peer(self.extensions)
    }
}

/// Without anything of the request, which is full of secrets.
impl fmt::Debug for Sender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// A way to find out who sends a request. Every `Fn(&Sender) -> Option<Identity>` is one.
///
/// The same person must get the same identity from every instance of a service, and two people must not get the same
/// one, or the one stands in the other's way.
pub trait Identify: Send + Sync + 'static {
    /// Who sends it, or `None` if this way cannot tell.
    fn identify(&self, sender: &Sender<'_>) -> Option<Identity>;

    /// Whether it asks for parameters, so that they must be read from the body before.
    fn needs_params(&self) -> bool {
        false
    }
}

impl<F> Identify for F
where
    F: Fn(&Sender<'_>) -> Option<Identity> + Send + Sync + 'static,
{
    fn identify(&self, sender: &Sender<'_>) -> Option<Identity> {
        self(sender)
    }
}

/// Steps in order: the first that knows the sender decides.
///
/// Unless told otherwise: [`Verified`], [`Authorization`], [`UserParam`], [`SessionCookie`], [`ClientAddress`].
///
/// ```
/// use clinch::http::{ClientAddress, Identify, IdentityChain, Sender, TrustedProxies, Verified};
/// use clinch::submit::Identity;
///
/// // The usual steps, and before them one of our own.
/// let chain = IdentityChain::default().first(|sender: &Sender<'_>| {
///     let device = sender.headers().get("x-device")?;
///     Some(Identity::new("device", device.as_bytes()))
/// });
/// # assert!(chain.needs_params());
///
/// // Only steps that nobody can forge.
/// let proxies = TrustedProxies::parse(["10.0.0.0/8"])?;
/// let chain = IdentityChain::new().then(Verified).then(ClientAddress::behind(proxies));
/// # assert!(!chain.needs_params());
/// # Ok::<(), clinch::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct IdentityChain {
    steps: Vec<Arc<dyn Identify>>,
}

impl IdentityChain {
    /// No step: nobody is known.
    pub const fn new() -> Self {
        Self { steps: Vec::new() }
    }

    /// The usual steps, for a service behind these proxies: the last step believes what they say of the client's address.
    pub fn behind(proxies: TrustedProxies) -> Self {
        Self::usual(SessionCookie::default(), ClientAddress::behind(proxies))
    }

    pub(crate) fn usual(session: SessionCookie, address: ClientAddress) -> Self {
        Self::new().then(Verified).then(Authorization).then(UserParam::default()).then(session).then(address)
    }

    /// Adds a step after all others.
    pub fn then(mut self, step: impl Identify) -> Self {
        self.steps.push(Arc::new(step));
        self
    }

    /// Adds a step before all others.
    pub fn first(mut self, step: impl Identify) -> Self {
        self.steps.insert(0, Arc::new(step));
        self
    }
}

impl Default for IdentityChain {
    fn default() -> Self {
        Self::usual(SessionCookie::default(), ClientAddress::new())
    }
}

impl Identify for IdentityChain {
    fn identify(&self, sender: &Sender<'_>) -> Option<Identity> {
        self.steps.iter().find_map(|step| step.identify(sender))
    }

    fn needs_params(&self) -> bool {
        self.steps.iter().any(|step| step.needs_params())
    }
}

impl fmt::Debug for IdentityChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdentityChain({} steps)", self.steps.len())
    }
}

/// An id that the application has verified. Its authentication puts it into the request's extensions, in a layer outside
/// the guard's: `request.extensions_mut().insert(VerifiedUser(id))`. For attributes that is outside of
/// [`Web::layer`](super::Web::layer): what is put there inside of it, they do not see.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VerifiedUser(pub String);

/// The step that takes a [`VerifiedUser`] from the request's extensions; an empty id counts as none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified;

impl Identify for Verified {
    fn identify(&self, sender: &Sender<'_>) -> Option<Identity> {
        let VerifiedUser(id) = sender.extensions.get()?;
        (!id.is_empty()).then(|| Identity::user(id.as_bytes()))
    }
}

/// The step that takes whoever sends the same `Authorization` for the same one. Nothing is verified: that is the
/// application's business, which refuses the request behind the guard.
///
/// The whole value counts, byte by byte, without blanks around it and with its scheme in lower case (`bearer` is
/// `Bearer`); an empty one counts as none. If a request has several, all of them count, in their order, since nobody knows
/// which of them the application looks at.
///
/// A client that gets a new token, or whose scheme makes a new value for every request (`Digest`, signatures), is somebody
/// new each time: put a [`VerifiedUser`] into such requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Authorization;

impl Identify for Authorization {
    fn identify(&self, sender: &Sender<'_>) -> Option<Identity> {
        let mut parts = Parts::default();
        for line in sender.headers.get_all(AUTHORIZATION) {
            let value = line.as_bytes().trim_ascii();
            match value.iter().position(u8::is_ascii_whitespace) {
                None if value.is_empty() => {}
                // A single word is no scheme but a token.
                None => _ = parts.push(&[value]),
                Some(end) => {
                    let (scheme, credentials) = value.split_at(end);
                    parts.push(&[scheme, b" ", credentials.trim_ascii_start()])[..end].make_ascii_lowercase();
                }
            }
        }
        parts.identity("token")
    }
}

/// The step that takes a parameter of the request for the user: `userId` unless [named](Self::named). Anybody can write
/// anything there, so such a user is never the [verified](Verified) one of the same id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserParam {
    names: Vec<String>,
}

impl UserParam {
    /// The parameter of one of these names: the first in this order that is there and is not empty.
    pub fn named<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { names: names.into_iter().map(Into::into).collect() }
    }
}

impl Default for UserParam {
    fn default() -> Self {
        Self::named(["userId"])
    }
}

impl Identify for UserParam {
    fn identify(&self, sender: &Sender<'_>) -> Option<Identity> {
        self.names.iter().find_map(|name| {
            let value = sender.param(name).filter(|value| !value.is_empty())?;
            joined("param", [name.as_bytes(), value.as_bytes()])
        })
    }

    fn needs_params(&self) -> bool {
        true
    }
}

/// The step that takes whoever sends the same session cookie for the same one.
///
/// Unless [named](Self::named), it is the first of `__Host-session`, `session`, `sessionid`, `session_id`, `sid`,
/// `connect.sid`, `SESSION`, `JSESSIONID`, `PHPSESSID`, `id` (as `tower-sessions` calls it). Name yours if it has another name,
/// or if its value changes with what is stored in it, as it does where the whole session is in the cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCookie {
    names: Vec<String>,
}

impl SessionCookie {
    /// The names under which common frameworks keep their session.
    pub const COMMON: &[&str] = &[
        "__Host-session",
        "session",
        "sessionid",
        "session_id",
        "sid",
        "connect.sid",
        "SESSION",
        "JSESSIONID",
        "PHPSESSID",
        "id",
    ];

    /// The cookie of one of these names: the first in this order that is there and is not empty. If it is there more than
    /// once, all its values count, since nobody knows which of them the application looks at. Quotation marks around a
    /// value do not count.
    pub fn named<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { names: names.into_iter().map(Into::into).collect() }
    }
}

impl Default for SessionCookie {
    fn default() -> Self {
        Self::named(Self::COMMON.iter().copied())
    }
}

impl Identify for SessionCookie {
    fn identify(&self, sender: &Sender<'_>) -> Option<Identity> {
        let cookies: Vec<_> = cookies(sender.headers).collect();
        self.names.iter().find_map(|name| {
            let mut values = cookies.iter().filter(|(n, _)| *n == name.as_bytes()).map(|(_, value)| *value);
            let first = values.next()?;
            joined("session", [name.as_bytes(), first].into_iter().chain(values))
        })
    }
}

/// All cookies that have a name and a value, of all header lines (HTTP/2 sends one line each).
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    let lines = headers.get_all(COOKIE).iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';')).filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        let value = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value);
        (!name.is_empty() && !value.is_empty()).then_some((name, value))
    })
}

/// One identity of several parts.
fn joined<'a>(kind: &'static str, parts: impl IntoIterator<Item = &'a [u8]>) -> Option<Identity> {
    let mut all = Parts::default();
    for part in parts {
        all.push(&[part]);
    }
    all.identity(kind)
}

/// The parts of an identity. Every one is headed by its length, so that two different lists never make the same one.
#[derive(Default)]
struct Parts(Vec<u8>);

impl Parts {
    /// One part, of these pieces.
    fn push(&mut self, pieces: &[&[u8]]) -> &mut [u8] {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.0.reserve(size_of::<u64>() + length);
        self.0.extend_from_slice(&(length as u64).to_le_bytes());
        let start = self.0.len();
        pieces.iter().for_each(|piece| self.0.extend_from_slice(piece));
        &mut self.0[start..]
    }

    /// None if there is no part.
    fn identity(self, kind: &'static str) -> Option<Identity> {
        (!self.0.is_empty()).then(|| Identity::new(kind, self.0))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::http::PeerAddress;

    /// A request: header lines, parameters, and what is among its extensions.
    #[derive(Default)]
    struct Request {
        headers: HeaderMap,
        extensions: Extensions,
        params: Vec<(&'static str, &'static str)>,
    }

    impl Request {
        fn header(mut self, name: &'static str, value: &[u8]) -> Self {
            self.headers.append(name, HeaderValue::from_bytes(value).unwrap());
            self
        }

        fn param(mut self, name: &'static str, value: &'static str) -> Self {
            self.params.push((name, value));
            self
        }

        fn with(mut self, extension: impl Clone + Send + Sync + 'static) -> Self {
            self.extensions.insert(extension);
            self
        }

        fn by(&self, step: &impl Identify) -> Option<Identity> {
            let param = |name: &str| {
                self.params.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            };
            step.identify(&Sender::new(&self.headers, &self.extensions, &param))
        }
    }

    fn authorization(lines: &[&[u8]]) -> Option<Identity> {
        let request = Request::default();
        lines.iter().fold(request, |request, line| request.header("authorization", line)).by(&Authorization)
    }

    fn session(lines: &[&str]) -> Option<Identity> {
        let step = SessionCookie::named(["sid", "other"]);
        let request = Request::default();
        lines.iter().fold(request, |request, line| request.header("cookie", line.as_bytes())).by(&step)
    }

    /// Proves: D3
    #[test]
    fn the_first_step_that_knows_decides_in_the_usual_order() {
        let chain = IdentityChain::default();
        let mut request = Request::default();
        assert_eq!(request.by(&chain), None);
        let mut seen = Vec::new();
        for add in [
            |r: Request| r.with(PeerAddress("192.0.2.1:80".parse().unwrap())),
            |r: Request| r.header("cookie", b"theme=dark; JSESSIONID=one"),
            |r: Request| r.param("userId", "42"),
            |r: Request| r.header("authorization", b"Bearer secret"),
            |r: Request| r.with(VerifiedUser("42".to_owned())),
        ] {
            request = add(request);
            seen.push(request.by(&chain).unwrap());
        }
        let kinds: Vec<_> = seen.iter().map(Identity::kind).collect();
        assert_eq!(kinds, ["address", "session", "param", "token", "user"]);
        assert_eq!(seen[4], Identity::user("42"));
        assert_ne!(seen[2], seen[4]); // who only says that he is user 42 is not user 42
        assert!(chain.needs_params());
    }

    /// Proves: D3
    #[test]
    fn steps_can_be_added_in_front_behind_and_as_closures() {
        let device =
            |sender: &Sender<'_>| Some(Identity::new("device", sender.headers().get("x-device")?.as_bytes()));
        let request = Request::default().with(VerifiedUser("42".to_owned()));
        let chain = IdentityChain::default().first(device);
        assert_eq!(request.by(&chain).unwrap().kind(), "user");
        let request = request.header("x-device", b"\xff\x80");
        assert_eq!(request.by(&chain), Some(Identity::new("device", b"\xff\x80")));
        assert_eq!(request.by(&IdentityChain::default().then(device)).unwrap().kind(), "user");
        let inner = IdentityChain::new().then(device);
        assert!(!inner.needs_params());
        let outer = inner.clone().then(UserParam::named(["uid", "userId"]));
        assert!(IdentityChain::new().then(outer).needs_params());
        assert_eq!(format!("{inner:?}"), "IdentityChain(1 steps)");
    }

    #[test]
    fn nothing_is_nobody() {
        let request = Request::default()
            .with(VerifiedUser(String::new()))
            .header("authorization", b" ")
            .header("authorization", b"")
            .param("userId", "")
            .header("cookie", b"sid=; session=\"\"; =nameless; flag; ;;;");
        assert_eq!(request.by(&IdentityChain::default()), None);
    }

    #[test]
    fn a_token_is_its_bytes_but_for_the_case_of_its_scheme() {
        let one = authorization(&[b"Bearer AbC"]);
        assert_eq!(one, authorization(&[b"  bEARER   AbC "]));
        assert_ne!(one, authorization(&[b"Bearer abc"]));
        assert_ne!(one, authorization(&[b"Basic AbC"]));
        assert_ne!(authorization(&[b"AbC"]), authorization(&[b"abc"])); // a token without a scheme
        let (binary, other) = (authorization(&[b"Bearer \xff\xfe"]), authorization(&[b"Bearer \xff\xfd"]));
        assert!(binary.is_some());
        assert_ne!(binary, other);
        // Several lines count as several.
        assert_ne!(authorization(&[b"a b", b"c d"]), authorization(&[b"c d", b"a b"]));
        assert_ne!(authorization(&[b"ab", b"c"]), authorization(&[b"a", b"bc"]));
        assert_ne!(authorization(&[b"ab", b"c"]), authorization(&[b"abc"]));
        let long = vec![b'x'; 10_000];
        let mut longer = long.clone();
        longer.push(b'x');
        assert_ne!(authorization(&[&long]), authorization(&[&longer]));
        assert_eq!(format!("{:?}", one.unwrap()), "Identity(token)");
    }

    #[test]
    fn cookies_are_read_as_they_are_sent() {
        let one = session(&["sid=a1"]);
        assert_eq!(one.as_ref().unwrap().kind(), "session");
        for same in [
            &["theme=dark; sid=a1"] as &[&str],
            &["theme=dark", "sid=a1"],
            &["sid=\"a1\""],
            &["  sid = a1 ;x=y"],
            &["other=zz; sid=a1"],
            &["sid=a1; SID=b; xsid=c; sid2=d"],
            &["sid=; sid=a1"],
        ] {
            assert_eq!(session(same), one, "{same:?}");
        }
        for different in [
            &["sid=a2"] as &[&str],
            &["other=a1"],
            &["sid=A1"],
            &["sid=\"a1"],
            &["sid=a=1"],
            &["sid=a1; sid=a2"],
            &["sid=a2", "sid=a1"],
        ] {
            assert!(session(different).is_some(), "{different:?}");
            assert_ne!(session(different), one, "{different:?}");
        }
        assert_ne!(session(&["sid=a1; sid=a2"]), session(&["sid=a2; sid=a1"]));
        let request = Request::default().header("cookie", b"sid=\xff\xfe; sid=\x80");
        assert!(request.by(&SessionCookie::default()).is_some());
        let request = Request::default().header("cookie", &b"a=b;".repeat(2_500)).header("cookie", b"sid=a1");
        assert_eq!(request.by(&SessionCookie::named(["sid"])), one);
    }

    #[test]
    fn a_sender_shows_nothing() {
        let request = Request::default().header("authorization", b"Bearer secret");
        let sender = Sender::new(&request.headers, &request.extensions, &|_| None);
        assert_eq!(format!("{sender:?}"), "Sender { .. }");
    }
}
