//! Flags of whatever keeps its members in etcd, or finds them there.

use std::path::PathBuf;

use serde::Serialize;

/// Flatten into a program's flags.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct EtcdFlags {
    /// etcd servers (http://host:2379 or https://host:2379, several by comma) in which workers say that they are there, and where
    /// routers find them [default: workers join a router]
    #[arg(long, env = "TANDEM_ETCD", value_name = "URL", value_delimiter = ',', group = "joining")]
    pub etcd: Vec<String>,
    /// What every key of this cluster begins with: clusters of one etcd are told apart by it
    #[arg(long, env = "TANDEM_ETCD_PREFIX", value_name = "PREFIX", default_value = "/tandem")]
    pub etcd_prefix: String,
    /// Folder with ca.crt, the authority (PEM) of https:// servers, and with tls.crt and tls.key where they ask for a
    /// certificate. Read again at each connection
    #[arg(long, env = "TANDEM_ETCD_TLS", value_name = "FOLDER", requires = "etcd")]
    pub etcd_tls: Option<PathBuf>,
    /// User to log in to etcd as
    #[arg(long, env = "TANDEM_ETCD_USER", value_name = "NAME", requires_all = ["etcd", "etcd_password_file"])]
    pub etcd_user: Option<String>,
    /// File with that user's password; white space at its end does not count. Read again at each connection
    #[arg(long, env = "TANDEM_ETCD_PASSWORD_FILE", value_name = "FILE", requires = "etcd_user")]
    pub etcd_password_file: Option<PathBuf>,
}

impl EtcdFlags {
    /// The same as flags of another process.
    pub fn to_flags(&self) -> Vec<String> {
        if self.etcd.is_empty() {
            return Vec::new();
        }
        let path = |path: &PathBuf| path.display().to_string();
        let optional = [
            ("etcd-tls", self.etcd_tls.as_ref().map(path)),
            ("etcd-user", self.etcd_user.clone()),
            ("etcd-password-file", self.etcd_password_file.as_ref().map(path)),
        ];
        let given = optional.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value?)));
        let always =
            [format!("--etcd={}", self.etcd.join(",")), format!("--etcd-prefix={}", self.etcd_prefix)];
        always.into_iter().chain(given).collect()
    }
}
