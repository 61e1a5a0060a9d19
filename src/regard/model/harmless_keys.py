"""Keys of a config.json that do not change the network, whatever its family.

`transformers` and related tools write far more into a config.json than describes the network. The keys listed here are
ignored; a family adds its own. All other keys must be read by the family, or the model is not opened.
"""

WRITER = (  # origin of the file, and how it was trained and run
    *("model_type", "architectures", "transformers_version", "torch_dtype", "dtype", "auto_map", "_auto_class"),
    *("trust_remote_code", "custom_pipelines"),
    *("_name_or_path", "name_or_path", "_commit_hash", "tokenizer_class", "prefix", "finetuning_task"),
    *("use_cache", "output_hidden_states", "output_attentions", "output_past", "return_dict", "use_return_dict"),
    *("torchscript", "use_bfloat16", "tf_legacy_loss", "gradient_checkpointing", "chunk_size_feed_forward"),
    *("attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "_attn_implementation_internal"),
    *("experts_implementation", "_experts_implementation", "_experts_implementation_internal", "_flash_attn_2_enabled"),
    *("tie_last_hidden_states", "cross_attention_hidden_size", "transformers.js_config", "unsloth_version"),
    *("unsloth_fixed", "sentence_transformers", "sbert_ce_default_activation_function"),
)
LABELS = ("id2label", "label2id", "num_labels", "_num_labels", "problem_type")  # of models that have no such head
TOKENS = (
    *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id", "mask_token_id", "unk_token_id"),
    *("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id"),
)
GENERATION = (  # before there was a generation_config.json
    *("max_length", "min_length", "max_new_tokens", "min_new_tokens", "do_sample", "early_stopping", "num_beams"),
    *("num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff"),
    *("eta_cutoff", "repetition_penalty", "encoder_repetition_penalty", "length_penalty", "no_repeat_ngram_size"),
    *("encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores"),
    *("return_dict_in_generate", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens"),
    *("begin_suppress_tokens", "num_assistant_tokens", "num_assistant_tokens_schedule"),
    *("assistant_confidence_threshold", "assistant_lookbehind", "target_lookbehind", "task_specific_params"),
    "force_bos_token_to_be_generated",
)
BOOKKEEPING = frozenset((*WRITER, *LABELS, *TOKENS, *GENERATION))
