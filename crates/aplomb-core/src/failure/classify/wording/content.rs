//! Wording of what is wrong with the content: filters, images, tools.

use crate::failure::Reason;
use crate::failure::classify::rule::{Opinion, Rule, Test};

pub(in super::super) const RULES: &[Rule] = &[FILTER, IMAGE, TOOLS];

/// Sources: Azure ("content management policy"), OpenAI ("our safety system", "flagged as potentially violating our usage
/// policy"), Anthropic ("Output blocked by content filtering policy"), OpenRouter ("flagged by moderation"), DeepSeek
/// ("Content Exists Risk"), Moonshot ("considered high risk"), DashScope ("inappropriate content"), Gemini
/// (`PROHIBITED_CONTENT`), Z.AI (敏感).
const FILTER: Rule = Rule {
    id: "wording.filter",
    why: "The message says that a filter stopped it.",
    test: Test::Wording {
        at: |seen| !seen.is_client_text() && seen.status() != Some(429),
        any: &[
            &["content management policy"],
            &["content filtering policy"],
            &["content policy"],
            &["content filter"],
            &["content_filter"],
            &["content safety"],
            &["our safety system"],
            &["flagged by moderation"],
            &["flagged as potentially"],
            &["content was flagged"],
            &["prompt was flagged"],
            &["violates our usage policies"],
            &["violating our usage policy"],
            &["violate our usage policy"],
            &["violates", "policy"],
            &["inappropriate content"],
            &["content exists risk"],
            &["considered high risk"],
            &["sensitive content"],
            &["unsafe or sensitive"],
            &["prohibited_content"],
            &["prohibited content"],
            &["blocked by our content"],
            &["blocked due to safety"],
            &["blocked by safety"],
            &["blocked by the guardrail"],
            &["敏感"],
            &["违规"],
        ],
        then: Opinion::forbid(Reason::ContentFilter),
    },
};

/// Sources: Anthropic ("Could not process image", "image exceeds 5 MB maximum", "image dimensions exceed"), OpenAI ("You
/// uploaded an unsupported image", "does not represent a valid image", "Error while downloading"), Gemini ("Unable to
/// process input image", "Base64 decoding failed"), vLLM ("At most 1 image(s) may be provided", "cannot identify image
/// file"), llama.cpp ("image input is not supported"), OpenRouter ("No endpoints found that support image input"),
/// DeepSeek ("unknown variant `image_url`").
const IMAGE: Rule = Rule {
    id: "wording.image",
    why: "The message says that an image cannot be read, or not by this model.",
    test: Test::Wording {
        at: |seen| !seen.is_client_text(),
        any: &[
            &["could not process image"],
            &["unable to process input image"],
            &["unable to process image"],
            &["failed to process image"],
            &["failed to load image"],
            &["failed to decode image"],
            &["failed to download image"],
            &["failed to fetch image"],
            &["error while downloading http"],
            &["could not decode image"],
            &["cannot identify image file"],
            &["not represent a valid image"],
            &["not a valid image"],
            &["unsupported image"],
            &["invalid image"],
            &["image data is not"],
            &["image exceeds"],
            &["image size exceeds"],
            &["image is too large"],
            &["image too large"],
            &["too many images"],
            &["image dimensions exceed"],
            &["images exceed"],
            &["image does not match the provided media type"],
            &["using the image/", "media type"],
            &["inline_data", "base64 decoding failed"],
            &["image(s) may be provided"],
            &["variant `image_url`"],
            &["variant 'image_url'"],
            &["does not support image"],
            &["support image input"],
            &["image input is not supported"],
            &["images are not supported"],
            &["image_url is only supported"],
            &["image_url is not supported"],
            &["not a multimodal model"],
        ],
        then: Opinion::forbid(Reason::InvalidImage),
    },
};

/// Sources: OpenAI ("Invalid schema for function"), Anthropic ("tools.0.custom: Invalid schema", "tools.0.…input_schema",
/// "Schema is too complex"), Gemini (`function_declarations[…]`), Vertex ("functionDeclaration"), Bedrock
/// (`toolSpec/inputSchema`), llama.cpp ("Unable to generate parser for this template", "JSON schema conversion failed").
const TOOLS: Rule = Rule {
    id: "wording.tool_schema",
    why: "The message says that a tool's schema is not accepted.",
    test: Test::Wording {
        at: |seen| !seen.is_client_text() && seen.status() != Some(429),
        any: &[
            &["invalid schema for function"],
            &["invalid function parameters"],
            &["function_declarations["],
            &["functiondeclaration"],
            &["schema is too complex"],
            &["tools.", "invalid schema"],
            &["tools.", "input_schema"],
            &["tools.", "input tag"],
            &["toolspec/inputschema"],
            &["toolspec.inputschema"],
            &["unsupported schema keyword"],
            &["json schema conversion failed"],
            &["tool schema"],
            &["schema for tool"],
            &["tool_schema"],
            &["schemas for the tools"],
        ],
        then: Opinion::forbid(Reason::ToolSchemaInvalid),
    },
};
