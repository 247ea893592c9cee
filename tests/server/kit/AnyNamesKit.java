package org.apache.iceberg.rest;

import org.apache.iceberg.catalog.Namespace;
import org.junit.jupiter.api.AfterEach;

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

  /** Each test expects an empty catalog; the kit itself removes only the namespaces of tests that are not nested. */
  @AfterEach
  public void dropEverything() {
    dropInside(Namespace.empty());
  }

  private void dropInside(Namespace outer) {
    for (Namespace namespace : catalog().listNamespaces(outer)) {
      dropInside(namespace);
      catalog().listTables(namespace).forEach(catalog()::dropTable);
      catalog().dropNamespace(namespace);
    }
  }
}
