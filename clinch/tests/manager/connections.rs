//! Every way to reach one server: password, user, database, socket, TLS.

use clinch::store::ErrorKind;
use clinch::{Error, LockManager};
use clinch_testkit::server::RedisServer;

use crate::common::{list_all, take};

async fn works(url: &str) {
    let manager = LockManager::connect(url).await.unwrap();
    let guard = take(&manager, "k").await;
    assert_eq!(list_all(&manager).await.len(), 1);
    assert!(guard.release().await.unwrap());
    assert!(manager.ping().await.is_ok());
}

#[tokio::test]
async fn password_user_and_database() {
    let server = RedisServer::builder()
        .password("p@ss:w/ord")
        .acl_user("app", "on >sec@ret ~clinch:* resetchannels &clinch:* +@all")
        .start();
    works(&server.url_with(0, None, Some("p@ss:w/ord"))).await;
    works(&server.url_with(0, Some("app"), Some("sec@ret"))).await;
    let manager = LockManager::connect(&server.url_with(3, None, Some("p@ss:w/ord"))).await.unwrap();
    let guard = take(&manager, "k").await;
    assert_eq!(server.keys("*"), Vec::<String>::new(), "database 0 is empty");
    assert!(guard.release().await.unwrap());
}

/// A user without the right to publish or subscribe can still lock; its waiters poll.
#[tokio::test]
async fn a_user_without_channels_polls() {
    let server = RedisServer::builder().acl_user("app", "on >secret ~clinch:* resetchannels +@all").start();
    let url = server.url_with(0, Some("app"), Some("secret"));
    works(&url).await;
    let (one, two) = (LockManager::connect(&url).await.unwrap(), LockManager::connect(&url).await.unwrap());
    let guard = take(&one, "k").await;
    let waiter = tokio::spawn(async move {
        two.lock("k", crate::common::waiting(crate::common::TTL, crate::common::LONG)).await
    });
    tokio::task::yield_now().await;
    assert!(guard.release().await.unwrap(), "the key is deleted although publishing fails");
    assert!(waiter.await.unwrap().unwrap().release().await.unwrap());
}

/// A user without the right to the keys is told so, and nothing was applied.
#[tokio::test]
async fn a_user_without_rights_is_told_so() {
    let server = RedisServer::builder().acl_user("app", "on >secret ~other:* &* +@all").start();
    let manager = LockManager::connect(&server.url_with(0, Some("app"), Some("secret"))).await.unwrap();
    match manager.try_lock("k", crate::common::TTL).await {
        Err(Error::Engine { cause: source, .. }) => assert_eq!(source.kind(), ErrorKind::Auth, "{source}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(server.keys("*"), Vec::<String>::new());
}

#[tokio::test]
async fn unix_socket() {
    let server = RedisServer::builder().unix_socket(true).start();
    works(&server.unix_url()).await;
}

/// TLS is verified: a certificate from an authority that is not trusted is refused.
#[cfg(feature = "redis-tls")]
#[tokio::test]
async fn tls_is_verified() {
    if !RedisServer::supports_tls() {
        println!("this server was built without TLS: not shown on it");
        return;
    }
    let server = RedisServer::builder().tls(true).start();
    let manager = LockManager::builder()
        .tls_root_certificates(server.ca_pem())
        .connect(&server.tls_url())
        .await
        .unwrap();
    let guard = take(&manager, "k").await;
    assert!(guard.release().await.unwrap());

    match LockManager::connect(&server.tls_url()).await {
        Err(Error::Engine { cause: source, .. }) => {
            assert_eq!(source.kind(), ErrorKind::Unavailable, "{source}");
        }
        other => panic!("an unknown authority must be refused: {other:?}"),
    }
    let garbage =
        LockManager::builder().tls_root_certificates("not a certificate").connect(&server.tls_url()).await;
    assert!(garbage.is_err());
}

#[cfg(not(feature = "redis-tls"))]
#[tokio::test]
async fn without_the_feature_tls_is_refused_and_named() {
    let error = LockManager::connect("rediss://localhost").await.unwrap_err();
    assert!(matches!(&error, Error::InvalidUrl { reason, .. } if reason.contains("`redis-tls`")), "{error}");
    let _ = ErrorKind::Config;
}
