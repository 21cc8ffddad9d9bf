//! A certificate authority for all servers of a test, so that those of one deployment trust each other.

use std::sync::OnceLock;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// What a server needs to speak TLS, and a client to trust it; all as PEM.
pub(super) struct Identity {
    pub(super) ca: String,
    pub(super) certificate: String,
    pub(super) key: String,
}

/// Who signs, and its own certificate as PEM.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// The one of this process.
fn authority() -> Result<&'static Authority, rcgen::Error> {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    if let Some(authority) = AUTHORITY.get() {
        return Ok(authority);
    }
    let key = KeyPair::generate()?;
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "Clinch test authority");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let pem = ca.self_signed(&key)?.pem();
    // Whoever was first is the one for all.
    Ok(AUTHORITY.get_or_init(|| Authority { issuer: Issuer::new(ca, key), pem }))
}

/// Makes a certificate for `localhost` and 127.0.0.1, signed by the authority.
pub(super) fn identity() -> Result<Identity, rcgen::Error> {
    let authority = authority()?;
    let key = KeyPair::generate()?;
    let mut server = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    server.distinguished_name.push(DnType::CommonName, "localhost");
    server.use_authority_key_identifier_extension = true;
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Servers of a Cluster show it to each other in both roles.
    server.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = server.signed_by(&key, &authority.issuer)?.pem();

    Ok(Identity { ca: authority.pem.clone(), certificate, key: key.serialize_pem() })
}
