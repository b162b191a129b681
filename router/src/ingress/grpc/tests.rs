use proto::v1::{Chat, ChatMessage, GenerateRequest, generate_request::Prompt};

use super::asked;
use crate::error::Error;

#[test]
fn a_role_that_no_one_has_is_refused_by_name() {
    let message = |role: &str| ChatMessage { role: role.to_owned(), content: "hi".to_owned() };
    let request = |role: &str| {
        let messages = vec![message("user"), message(role)];
        asked(GenerateRequest { prompt: Some(Prompt::Chat(Chat { messages })), ..GenerateRequest::default() })
    };
    assert!(request("assistant").is_ok());
    for role in ["robot", "tool"] {
        let refused = request(role).unwrap_err();
        assert!(
            matches!(&refused, Error::Invalid { field, .. } if field == "prompt.chat.messages[1].role"),
            "{refused}"
        );
    }
}
