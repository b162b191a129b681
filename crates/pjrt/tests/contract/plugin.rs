use std::sync::Arc;

use pjrt::{Client, Error, Fault, OptionValue, Plugin, plugin_path};

use crate::setup::client;

#[test]
fn the_plugin_is_loaded_once_and_known_by_its_digest() {
    let path = plugin_path().unwrap();
    let (first, second) = (Plugin::load(&path).unwrap(), Plugin::load(&path).unwrap());
    assert!(Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&first, client().plugin()));
    assert_eq!(first.api_version().0, 0);
    assert!(first.api_version().1 >= 81);
    assert_eq!(first.sha256().unwrap(), first.sha256().unwrap());
    assert!(!client().platform_version().is_empty());
}

#[test]
fn a_client_has_the_devices_it_was_asked_for() {
    assert_eq!(client().devices().len(), 4);
    let mut ids: Vec<_> = client().devices().iter().map(|device| device.id()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    assert!(
        client().devices().iter().all(|device| !device.kind().is_empty() && !device.description().is_empty())
    );
}

#[test]
fn buffers_of_two_clients_do_not_mix() {
    let other = Client::new(client().plugin(), &[]).unwrap();
    let buffer = other.buffer_from_slice(&[0f32; 4], &[4], &other.devices()[0]).unwrap();
    let add = crate::setup::compile(crate::setup::ADD);
    assert!(matches!(add.execute(&[&buffer, &buffer]), Err(Error::Argument { .. })));
    assert!(matches!(
        client().buffer_from_slice(&[0f32; 4], &[4], &other.devices()[0]),
        Err(Error::Argument { .. })
    ));
    // The buffer keeps its client.
    drop(other);
    assert_eq!(buffer.to_vec::<f32>().unwrap(), [0.; 4]);
}

#[test]
fn what_is_not_a_plugin_is_an_error() {
    let missing = Plugin::load("/nonexistent/plugin.so".as_ref()).unwrap_err();
    assert_eq!(missing.whose(), Fault::Plugin);
    let text = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(text.path(), "not a shared object").unwrap();
    let error = Plugin::load(text.path()).unwrap_err();
    assert!(error.to_string().contains(text.path().to_str().unwrap()), "{error}");
    let unknown = Client::new(client().plugin(), &[("no_such_option", OptionValue::Bool(true))]).unwrap_err();
    assert!(unknown.to_string().contains("no_such_option"), "{unknown}");
}
