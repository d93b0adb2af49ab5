//! The settings of object stores and web servers, by name: one table for each kind of store.
//!
//! A setting is given by one of its names, with or without the prefix of its kind, or by one of its environment
//! variables. The first variable that is set holds. `docs/reference/stores.md` explains the settings; a test compares
//! the two.

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `s3://` and `s3a://`.
    S3,
    /// `gs://`.
    Gs,
    /// `az://`, `abfs://` and `abfss://`.
    Az,
    /// `http://` and `https://`.
    Web,
}

/// One setting.
#[derive(Debug)]
pub(super) struct Known {
    /// Its name, which `object_store` knows with the kind's prefix, unless it is [one of ours](OWN).
    pub(super) name: &'static str,
    pub(super) other_names: &'static [&'static str],
    /// Variables of the environment.
    pub(super) variables: &'static [&'static str],
}

/// Settings that this crate carries out itself.
pub(super) const OWN: &[&str] = &["ca_bundle", "connection_string", "profile", "user_project"];

/// A request header of a web server is set by this prefix and its name.
pub(super) const HEADER: &str = "header.";

const fn known(
    name: &'static str,
    other_names: &'static [&'static str],
    variables: &'static [&'static str],
) -> Known {
    Known { name, other_names, variables }
}

impl Kind {
    /// Schemes, as messages name them.
    pub(super) const SCHEMES: &[&str] = &["s3", "gs", "az", "http", "https"];
    /// Further names of these schemes.
    pub(super) const ALIASES: &[&str] = &["s3a", "abfs", "abfss"];

    /// The kind of an address with this scheme.
    pub(super) fn of(scheme: &str) -> Option<Self> {
        match scheme {
            "s3" | "s3a" => Some(Kind::S3),
            "gs" => Some(Kind::Gs),
            "az" | "abfs" | "abfss" => Some(Kind::Az),
            "http" | "https" => Some(Kind::Web),
            _ => None,
        }
    }

    /// Prefixes that the name of a setting may have.
    pub(super) fn prefixes(self) -> &'static [&'static str] {
        match self {
            Kind::S3 => &["aws_"],
            Kind::Gs => &["google_"],
            Kind::Az => &["azure_storage_", "azure_"],
            Kind::Web => &[],
        }
    }

    /// The error for an address that has nothing after its scheme.
    pub(super) fn nowhere(self) -> &'static str {
        match self {
            Kind::S3 => "it names no bucket; write s3://BUCKET/PREFIX",
            Kind::Gs => "it names no bucket; write gs://BUCKET/PREFIX",
            Kind::Az => "it names no container; write az://CONTAINER/PREFIX",
            Kind::Web => "it names no host; write https://HOST/PATH",
        }
    }

    /// Settings of all kinds, and those of this kind.
    pub(super) fn settings(self) -> impl Iterator<Item = &'static Known> {
        let own = match self {
            Kind::S3 => S3,
            Kind::Gs => GS,
            Kind::Az => AZ,
            Kind::Web => &[],
        };
        own.iter().chain(COMMON)
    }

    /// Settings that identify the user. If one of them is given, all of them from the environment are ignored, except
    /// the name of a profile.
    pub(super) fn identities(self) -> &'static [&'static str] {
        match self {
            Kind::S3 => &[
                "access_key_id",
                "secret_access_key",
                "session_token",
                "profile",
                "web_identity_token_file",
                "skip_signature",
            ],
            Kind::Gs => &[
                "service_account",
                "service_account_key",
                "application_credentials",
                "bearer_token",
                "skip_signature",
            ],
            Kind::Az => &[
                "account_key",
                "sas_token",
                "connection_string",
                "token",
                "client_id",
                "client_secret",
                "use_azure_cli",
                "use_emulator",
                "skip_signature",
            ],
            Kind::Web => &[],
        }
    }
}

/// Settings of the client, for all kinds of store. Their variables have the prefix of the kind.
const COMMON: &[Known] = &[
    known("allow_http", &[], &[]),
    known("allow_invalid_certificates", &[], &[]),
    known("ca_bundle", &[], &["AWS_CA_BUNDLE"]),
    known("connect_timeout", &[], &[]),
    known("disable_system_certificates", &[], &[]),
    known("http1_only", &[], &[]),
    known("http2_keep_alive_interval", &[], &[]),
    known("http2_keep_alive_timeout", &[], &[]),
    known("http2_keep_alive_while_idle", &[], &[]),
    known("http2_max_frame_size", &[], &[]),
    known("http2_only", &[], &[]),
    known("pool_idle_timeout", &[], &[]),
    known("pool_max_idle_per_host", &[], &[]),
    known("proxy_ca_certificate", &[], &[]),
    known("proxy_excludes", &[], &[]),
    known("proxy_url", &[], &[]),
    known("randomize_addresses", &[], &[]),
    known("read_timeout", &[], &[]),
    known("timeout", &[], &[]),
    known("user_agent", &[], &[]),
];

const S3: &[Known] = &[
    known("access_key_id", &[], &["AWS_ACCESS_KEY_ID"]),
    known("secret_access_key", &[], &["AWS_SECRET_ACCESS_KEY"]),
    known("session_token", &["token"], &["AWS_SESSION_TOKEN", "AWS_TOKEN"]),
    known("profile", &[], &["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]),
    known("skip_signature", &[], &["AWS_SKIP_SIGNATURE"]),
    known("region", &[], &["AWS_REGION"]),
    known("default_region", &[], &["AWS_DEFAULT_REGION"]),
    known("endpoint_url_s3", &[], &["AWS_ENDPOINT_URL_S3"]),
    known("endpoint_url", &["endpoint"], &["AWS_ENDPOINT_URL", "AWS_ENDPOINT"]),
    known("request_payer", &["requester_pays"], &["AWS_REQUEST_PAYER"]),
    known("virtual_hosted_style_request", &[], &["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"]),
    known("unsigned_payload", &[], &["AWS_UNSIGNED_PAYLOAD"]),
    known("s3_express", &[], &["AWS_S3_EXPRESS"]),
    known("imdsv1_fallback", &[], &["AWS_IMDSV1_FALLBACK"]),
    known(
        "metadata_endpoint",
        &[],
        &["AWS_METADATA_ENDPOINT", "AWS_EC2_METADATA_SERVICE_ENDPOINT"],
    ),
    known("container_credentials_relative_uri", &[], &["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"]),
    known("container_credentials_full_uri", &[], &["AWS_CONTAINER_CREDENTIALS_FULL_URI"]),
    known("container_authorization_token_file", &[], &["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]),
    known("web_identity_token_file", &[], &["AWS_WEB_IDENTITY_TOKEN_FILE"]),
    known("role_arn", &[], &["AWS_ROLE_ARN"]),
    known("role_session_name", &[], &["AWS_ROLE_SESSION_NAME"]),
    known("endpoint_url_sts", &[], &["AWS_ENDPOINT_URL_STS"]),
    known("server_side_encryption", &[], &["AWS_SERVER_SIDE_ENCRYPTION"]),
    known("sse_kms_key_id", &[], &["AWS_SSE_KMS_KEY_ID"]),
    known("sse_bucket_key_enabled", &[], &["AWS_SSE_BUCKET_KEY_ENABLED"]),
    known("sse_customer_key_base64", &[], &["AWS_SSE_CUSTOMER_KEY_BASE64"]),
];

const GS: &[Known] = &[
    known(
        "service_account",
        &["service_account_path"],
        &["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "SERVICE_ACCOUNT"],
    ),
    known("service_account_key", &[], &["GOOGLE_SERVICE_ACCOUNT_KEY"]),
    known("application_credentials", &[], &["GOOGLE_APPLICATION_CREDENTIALS"]),
    known("bearer_token", &[], &["GOOGLE_BEARER_TOKEN"]),
    known("skip_signature", &[], &["GOOGLE_SKIP_SIGNATURE"]),
    known("base_url", &["endpoint_url", "endpoint"], &["GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST"]),
    known("user_project", &["requester_pays"], &["GOOGLE_USER_PROJECT"]),
];

const AZ: &[Known] = &[
    known("account_name", &["account"], &["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"]),
    known(
        "account_key",
        &["access_key", "master_key"],
        &[
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_ACCESS_KEY",
            "AZURE_STORAGE_MASTER_KEY",
            "AZURE_STORAGE_KEY",
        ],
    ),
    known("sas_token", &["sas_key"], &["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"]),
    known("connection_string", &[], &["AZURE_STORAGE_CONNECTION_STRING"]),
    known("client_id", &[], &["AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID"]),
    known("client_secret", &[], &["AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET"]),
    known(
        "tenant_id",
        &["authority_id"],
        &[
            "AZURE_STORAGE_TENANT_ID",
            "AZURE_TENANT_ID",
            "AZURE_STORAGE_AUTHORITY_ID",
            "AZURE_AUTHORITY_ID",
        ],
    ),
    known("authority_host", &[], &["AZURE_STORAGE_AUTHORITY_HOST", "AZURE_AUTHORITY_HOST"]),
    known("token", &["bearer_token"], &["AZURE_STORAGE_TOKEN"]),
    known("skip_signature", &[], &["AZURE_SKIP_SIGNATURE"]),
    known("endpoint", &["endpoint_url"], &["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"]),
    known("use_emulator", &[], &["AZURE_STORAGE_USE_EMULATOR"]),
    known("use_azure_cli", &[], &["AZURE_USE_AZURE_CLI"]),
    known(
        "msi_endpoint",
        &["identity_endpoint"],
        &["IDENTITY_ENDPOINT", "AZURE_IDENTITY_ENDPOINT", "AZURE_MSI_ENDPOINT"],
    ),
    known("object_id", &[], &["AZURE_OBJECT_ID"]),
    known("msi_resource_id", &[], &["AZURE_MSI_RESOURCE_ID"]),
    known("federated_token_file", &[], &["AZURE_FEDERATED_TOKEN_FILE"]),
    known("use_fabric_endpoint", &[], &["AZURE_USE_FABRIC_ENDPOINT"]),
    known("fabric_token_service_url", &[], &["AZURE_FABRIC_TOKEN_SERVICE_URL"]),
    known("fabric_workload_host", &[], &["AZURE_FABRIC_WORKLOAD_HOST"]),
    known("fabric_session_token", &[], &["AZURE_FABRIC_SESSION_TOKEN"]),
    known("fabric_cluster_identifier", &[], &["AZURE_FABRIC_CLUSTER_IDENTIFIER"]),
    known("credential_type", &[], &["AZURE_CREDENTIAL_TYPE"]),
    known("encryption_key", &[], &["AZURE_STORAGE_ENCRYPTION_KEY"]),
];
