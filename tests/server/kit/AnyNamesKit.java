package org.apache.iceberg.rest;

/** The kit's tests of tables and namespaces, with those for names that its reference server does not support. */
public class AnyNamesKit extends RESTCompatibilityKitCatalogTests {
  @Override
  protected boolean supportsNestedNamespaces() {
    return true;
  }

  @Override
  protected boolean supportsNamesWithSlashes() {
    return true;
  }

  @Override
  protected boolean supportsNamesWithDot() {
    return true;
  }
}
