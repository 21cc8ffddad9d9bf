//! A certificate authority for one server.

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

/// Makes an authority, and a certificate for `localhost` and 127.0.0.1 that it signed.
pub(super) fn identity() -> Result<Identity, rcgen::Error> {
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "Clinch test authority");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let authority = Issuer::new(ca, ca_key);

    let key = KeyPair::generate()?;
    let mut server = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    server.distinguished_name.push(DnType::CommonName, "localhost");
    server.use_authority_key_identifier_extension = true;
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = server.signed_by(&key, &authority)?.pem();

    Ok(Identity { ca: ca_pem, certificate, key: key.serialize_pem() })
}
