//! What a checkpoint's config says the model is, and the bytes its weights and state need.
