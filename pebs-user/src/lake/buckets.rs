//! Lakes in object stores, where they are compiled in (the feature `object-stores`).

use std::sync::Arc;

use object_store::ObjectStore;

use super::address::{Address, Provider};
use super::error::LakeError;

#[cfg(not(feature = "object-stores"))]
pub(super) fn open(
    _: Provider,
    _: &str,
    address: &Address,
) -> Result<Arc<dyn ObjectStore>, LakeError> {
    Err(LakeError::NoStores {
        address: address.to_string(),
    })
}

/// The store of a bucket, by the settings in the environment.
#[cfg(feature = "object-stores")]
pub(super) fn open(
    provider: Provider,
    bucket: &str,
    address: &Address,
) -> Result<Arc<dyn ObjectStore>, LakeError> {
    use object_store::aws::AmazonS3Builder;
    use object_store::azure::MicrosoftAzureBuilder;
    use object_store::gcp::GoogleCloudStorageBuilder;

    use super::http::Connector;

    let opened = |error| LakeError::store(format!("open {address}"), &error);
    Ok(match provider {
        Provider::S3 => {
            let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
            let builder = builder.with_http_connector(Connector).with_retry(RETRIES);
            Arc::new(builder.build().map_err(opened)?)
        }
        Provider::Google => {
            let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
            let builder = builder.with_http_connector(Connector).with_retry(RETRIES);
            Arc::new(builder.build().map_err(opened)?)
        }
        Provider::Azure => {
            let builder = MicrosoftAzureBuilder::from_env().with_container_name(bucket);
            let builder = builder.with_http_connector(Connector).with_retry(RETRIES);
            Arc::new(builder.build().map_err(opened)?)
        }
    })
}

/// Repetition of a request that failed for reasons that pass (5xx, time out, connection cut): with jitter, for a
/// minute.
#[cfg(feature = "object-stores")]
const RETRIES: object_store::RetryConfig = object_store::RetryConfig {
    backoff: object_store::BackoffConfig {
        init_backoff: std::time::Duration::from_millis(100),
        max_backoff: std::time::Duration::from_secs(10),
        base: 2.0,
    },
    max_retries: 8,
    retry_timeout: std::time::Duration::from_mins(1),
};
